package io.nccl4j.training;

import io.nccl4j.DataType;
import java.util.List;
import java.util.stream.Collectors;
import org.jspecify.annotations.NullMarked;

/**
 * Gradients of one type that are reduced together.
 *
 * @param index its position in the launch order, from 0
 * @param type the element type
 * @param count the number of elements, including the gaps between gradients
 * @param slots its gradients, in the order in which they are expected to be ready
 */
@NullMarked
public record Bucket(int index, DataType type, long count, List<Slot> slots) {
  /**
   * The position of one gradient in its bucket.
   *
   * @param parameter the parameter of the gradient
   * @param offset the element offset in the bucket; a multiple of 16 bytes
   */
  public record Slot(Parameter parameter, long offset) {}

  /**
   * Copies the slots.
   *
   * @param index its position in the launch order
   * @param type the element type
   * @param count the number of elements
   * @param slots its gradients
   */
  public Bucket {
    slots = List.copyOf(slots);
  }

  /** {@return the size in bytes} */
  public long byteSize() {
    return type.byteSize(count);
  }

  /** {@return the parameters whose gradients the bucket holds, in slot order} */
  public List<Parameter> parameters() {
    return slots.stream().map(Slot::parameter).toList();
  }

  /** {@return a one-line description: index, type, count and parameter names} */
  @Override
  public String toString() {
    return slots.stream()
        .map(slot -> slot.parameter().name())
        .collect(
            Collectors.joining(", ", "bucket %d, %s x %d: ".formatted(index, type, count), ""));
  }
}
