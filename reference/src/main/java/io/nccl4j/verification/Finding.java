package io.nccl4j.verification;

import io.nccl4j.DataType;
import io.nccl4j.Operation;
import java.util.SortedSet;
import org.jspecify.annotations.NullMarked;

/** What {@link Verification} has found in one collective. */
@NullMarked
public sealed interface Finding {
  /** {@return the number of the collective in its communicator, the same on every rank} */
  long number();

  /**
   * The result of this rank is wrong. One is reported for all elements.
   *
   * @param number the number of the collective
   * @param operation the collective
   * @param type the type of the elements
   * @param rank this rank
   * @param element the index of the first wrong element in the output
   * @param expected its value as the reference computes it, with the bits
   * @param actual its value as NCCL computed it, with the bits
   * @param elements the number of wrong elements of this rank
   * @param ranks all ranks with wrong elements: all of them, if the error happened before the
   *     result was distributed
   * @param channel the channel that reduced the element, or -1 if it is not predicted
   * @param chunk the chunk of the channel's loop, or -1 if it is not predicted
   * @param order the algorithm, the protocol and the channels that NCCL chose, or {@code unknown}
   * @param bound the largest permitted difference of the values; 0 if bits were compared
   */
  record Difference(
      long number,
      Operation operation,
      DataType type,
      int rank,
      long element,
      String expected,
      String actual,
      long elements,
      SortedSet<Integer> ranks,
      int channel,
      int chunk,
      String order,
      double bound)
      implements Finding {
    @Override
    public String toString() {
      String where = channel < 0 ? "" : "; channel " + channel + ", chunk " + chunk;
      String how = bound == 0 ? "bit for bit" : "within " + bound + ", since the order is unknown";
      return "%s number %d (%s; NCCL's choice: %s%s): element %d of rank %d is %s, the reference has %s (compared %s); wrong elements of rank %d: %d; ranks with wrong elements: %s"
          .formatted(
              operation.method(),
              number,
              type,
              order,
              where,
              element,
              rank,
              actual,
              expected,
              how,
              rank,
              elements,
              ranks);
    }
  }

  /**
   * The input of this rank has NaN or infinity. One is reported for all elements.
   *
   * @param number the number of the collective
   * @param operation the collective
   * @param rank this rank
   * @param element the index of the first such element in the input
   * @param value its value
   * @param elements the number of such elements
   */
  record NonFiniteInput(
      long number, Operation operation, int rank, long element, double value, long elements)
      implements Finding {
    @Override
    public String toString() {
      return "%s number %d: element %d of the input of rank %d is %s; elements of it that are not finite: %d"
          .formatted(operation.method(), number, element, rank, value, elements);
    }
  }

  /**
   * Two ranks have called a collective differently. Every rank reports it.
   *
   * @param number the number of the collective
   * @param text the description, with both ranks and calls
   */
  record Mismatch(long number, String text) implements Finding {
    @Override
    public String toString() {
      return text;
    }
  }
}
