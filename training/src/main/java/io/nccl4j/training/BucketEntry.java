package io.nccl4j.training;

import io.nccl4j.Buffer;
import io.nccl4j.Stream;

/** A parameter in its bucket, and the state of its gradient in this step. */
final class BucketEntry {
  private final Parameter parameter;
  private final BucketBuffer buffer;
  private final Buffer slot;
  // The caller's gradient buffer, or null if backward writes to the slot.
  private final Buffer userGradient;
  private boolean marked;
  // The stream that has accumulated into the gradient since the last step, or null.
  private Stream accumulatedBy;
  private boolean unused;

  BucketEntry(Parameter parameter, BucketBuffer buffer, Buffer slot) {
    this.parameter = parameter;
    this.buffer = buffer;
    this.slot = slot;
    this.userGradient = parameter.gradient().orElse(null);
  }

  Parameter parameter() {
    return parameter;
  }

  BucketBuffer buffer() {
    return buffer;
  }

  /** Returns the buffer that backward writes the gradient to. */
  Buffer gradient() {
    return userGradient == null ? slot : userGradient;
  }

  /** Returns the slice of the bucket for the gradient. */
  Buffer slot() {
    return slot;
  }

  /** Returns whether the gradient is copied into its bucket. */
  boolean copied() {
    return userGradient != null;
  }

  boolean marked() {
    return marked;
  }

  void markReady() {
    marked = true;
  }

  /** Records that backward has accumulated into the gradient within {@code noSync}. */
  void accumulate(Stream source) {
    accumulatedBy = source;
  }

  /**
   * Marks a gradient that backward has not computed; it contributes zeros unless it has been
   * accumulated into since the last step.
   *
   * @return the stream that computes the gradient
   */
  Stream markUnused(Stream reader) {
    marked = true;
    unused = accumulatedBy == null;
    return unused ? reader : accumulatedBy;
  }

  boolean unused() {
    return unused;
  }

  void beginStep() {
    marked = false;
    accumulatedBy = null;
    unused = false;
  }
}
