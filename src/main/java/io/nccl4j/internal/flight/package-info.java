/**
 * The flight recorder of nccl4j: the last operations of each communicator, in files that survive
 * the process. Not to be confused with the JDK's Flight Recorder, which is in {@code internal.jfr}.
 */
package io.nccl4j.internal.flight;
