/**
 * Utilities for every package of the library: argument checks, deadlines, back-off, interrupts,
 * clean-up that survives failures, a thread that polls, loggers, warnings of objects that were
 * never closed, and conversions of narrow floating-point formats. Depends on no other package of
 * the library. Not exported.
 */
package io.nccl4j.internal.util;
