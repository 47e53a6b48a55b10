/**
 * Utilities for every package of the library: argument checks, deadlines, back-off, interrupts,
 * clean-up that survives failures, retries after memory shortage, and rate-limited warnings.
 * Depends on no other package of the library. Not exported.
 */
package io.nccl4j.internal.util;
