/**
 * The events that nccl4j writes to a recording of the JDK Flight Recorder, and whether one is
 * running. The classes whose work is recorded set the fields. Depends on no other package of the
 * library except {@code internal.util}. Not exported.
 */
package io.nccl4j.internal.jfr;
