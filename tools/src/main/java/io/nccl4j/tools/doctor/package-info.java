/**
 * The doctor: what is installed, found and usable, and what will hurt.
 *
 * <p>{@link io.nccl4j.tools.doctor.Doctor} reads the command line, gathers {@link
 * io.nccl4j.tools.doctor.Evidence}, lets every {@link io.nccl4j.tools.doctor.Check} look at it, and
 * writes a {@link io.nccl4j.tools.doctor.Report}. Everything that calls native code happens in a
 * process of its own, {@link io.nccl4j.tools.doctor.AllReduceProbe}, because a driver that is
 * broken hangs or crashes whoever calls it.
 */
package io.nccl4j.tools.doctor;
