/**
 * The bandwidth command: what {@code nccl-tests} measures, with its flags, lines and columns, on
 * any backend.
 *
 * <p>{@link io.nccl4j.tools.perf.Perf} reads the command line into {@link
 * io.nccl4j.tools.perf.Flags} and answers with an exit status; {@link io.nccl4j.tools.perf.Bench}
 * runs the ranks and measures; {@link io.nccl4j.tools.perf.TestData} says what every rank sends and
 * must receive; {@link io.nccl4j.tools.perf.Table} and {@link io.nccl4j.tools.perf.JsonReport}
 * write what came out.
 */
package io.nccl4j.tools.perf;
