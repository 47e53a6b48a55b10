/**
 * The streams and events of the reference backend. A {@code ReferenceStream} is a queue with one
 * thread, which executes operations, copies and event records.
 */
package io.nccl4j.internal.reference.stream;
