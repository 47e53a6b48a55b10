/**
 * The bandwidth command: the measurements of {@code nccl-tests}, with its flags, lines and columns,
 * on any backend.
 *
 * <p>{@link io.nccl4j.tools.perf.Perf} parses the command line into {@link
 * io.nccl4j.tools.perf.Flags} and returns the exit status; {@link io.nccl4j.tools.perf.Bench} runs
 * the ranks and measures; {@link io.nccl4j.tools.perf.TestData} computes the data that every rank
 * sends and must receive; {@link io.nccl4j.tools.perf.Table} and {@link
 * io.nccl4j.tools.perf.JsonReport} write the results.
 */
package io.nccl4j.tools.perf;
