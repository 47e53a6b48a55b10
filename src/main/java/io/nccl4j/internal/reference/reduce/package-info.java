/**
 * The arithmetic of the reference backend's reductions: one kernel for each element type, with the
 * rounding of NCCL's.
 */
package io.nccl4j.internal.reference.reduce;
