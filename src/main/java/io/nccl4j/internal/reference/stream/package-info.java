/**
 * The streams and events of the reference backend. A {@code ReferenceStream} is a queue with one
 * thread, which does the work of ranks, copies and marks.
 */
package io.nccl4j.internal.reference.stream;
