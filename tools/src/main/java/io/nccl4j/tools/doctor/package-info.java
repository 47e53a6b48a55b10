/**
 * The doctor: reports whether a collective can run on this machine and, if not, why and what to do.
 *
 * <p>{@link io.nccl4j.tools.doctor.Doctor} parses the command line, gathers the {@link
 * io.nccl4j.tools.doctor.MachineState}, runs every {@link io.nccl4j.tools.doctor.Check} on it and
 * prints a {@link io.nccl4j.tools.doctor.Report}. All native calls are made in a separate process,
 * {@link io.nccl4j.tools.doctor.AllReduceProbe}, because a broken driver hangs or crashes its
 * caller.
 */
package io.nccl4j.tools.doctor;
