package io.nccl4j.training;

import io.nccl4j.Buffer;
import io.nccl4j.Stream;

/** A parameter in its bucket, and how far its gradient is in this step. */
final class BucketEntry {
  private final Parameter parameter;
  private final BucketBuffer home;
  private final Buffer slot;
  // Where backward leaves the gradient, or null if that is the slot.
  private final Buffer given;
  private boolean marked;
  // The stream that has added to the gradient since the last step, or null.
  private Stream accumulatedBy;
  private boolean unused;

  BucketEntry(Parameter parameter, BucketBuffer home, Buffer slot) {
    this.parameter = parameter;
    this.home = home;
    this.slot = slot;
    this.given = parameter.gradient().orElse(null);
  }

  Parameter parameter() {
    return parameter;
  }

  BucketBuffer home() {
    return home;
  }

  /** Returns where backward leaves the gradient. */
  Buffer gradient() {
    return given == null ? slot : given;
  }

  /** Returns where the gradient lies in its bucket. */
  Buffer slot() {
    return slot;
  }

  /** Returns whether the gradient is copied into its bucket. */
  boolean copied() {
    return given != null;
  }

  boolean marked() {
    return marked;
  }

  void markReady() {
    marked = true;
  }

  /** Notes that backward has added to the gradient while the reducer was not synchronising. */
  void accumulate(Stream source) {
    accumulatedBy = source;
  }

  /**
   * Marks what backward has not come to: zeros, unless there is something from before.
   *
   * @return the stream that the gradient comes from
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
