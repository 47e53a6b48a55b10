package io.nccl4j.training;

import io.nccl4j.DataType;
import java.util.List;
import java.util.stream.Collectors;

/**
 * Gradients of one type that are reduced together.
 *
 * @param index its place in the order in which buckets are launched, from 0
 * @param type the type of its elements
 * @param count how many elements it has, the gaps between gradients included
 * @param slots its gradients, in the order in which they are expected to be ready
 */
public record Bucket(int index, DataType type, long count, List<Slot> slots) {
  /**
   * Where one gradient lies in its bucket.
   *
   * @param parameter whose gradient it is
   * @param offset its first element, counted from the bucket's first; on a multiple of 16 bytes
   */
  public record Slot(Parameter parameter, long offset) {}

  /**
   * Copies the slots.
   *
   * @param index its place in the order in which buckets are launched
   * @param type the type of its elements
   * @param count how many elements it has
   * @param slots its gradients
   */
  public Bucket {
    slots = List.copyOf(slots);
  }

  /** {@return the size in bytes} */
  public long byteSize() {
    return type.byteSize(count);
  }

  /** {@return the parameters whose gradients it has, in the order of the slots} */
  public List<Parameter> parameters() {
    return slots.stream().map(Slot::parameter).toList();
  }

  /** {@return what people read, on one line} */
  @Override
  public String toString() {
    return slots.stream()
        .map(slot -> slot.parameter().name())
        .collect(
            Collectors.joining(", ", "bucket %d, %s x %d: ".formatted(index, type, count), ""));
  }
}
