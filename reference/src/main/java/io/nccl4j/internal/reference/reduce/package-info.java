/**
 * The arithmetic of the reference backend's reductions: one kernel for each element type, which
 * rounds as NCCL does.
 */
package io.nccl4j.internal.reference.reduce;
