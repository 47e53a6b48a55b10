/**
 * Benchmarks of nccl4j, run by {@code scripts/bench}. Times measured on a stand-in library are the
 * cost of the call path, not of NCCL.
 */
package io.nccl4j.benchmarks;
