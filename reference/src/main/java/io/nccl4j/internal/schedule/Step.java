package io.nccl4j.internal.schedule;

import java.util.List;
import org.jspecify.annotations.NullMarked;

/**
 * One step of one rank on one slice: {@code rank} receives the elements from {@code begin}
 * (inclusive) to {@code end} (exclusive) from {@code from}, performs {@code action}, and sends to
 * {@code to}.
 *
 * @param channel the channel, from 0
 * @param loop the loop on a ring, the chunk on a tree, from 0
 * @param slice the slice of the chunk, from 0
 * @param step the index of the step, from 0. Data received in a step was sent in an earlier step,
 *     on a ring in the previous one
 * @param rank the rank
 * @param action the action of the rank
 * @param chunk the chunk of the loop, from 0; on a tree always 0
 * @param begin the first element of the slice
 * @param end the index after the last element of the slice
 * @param from the ranks that it receives from, in folding order
 * @param to the ranks that it sends to
 */
@NullMarked
public record Step(
    int channel,
    int loop,
    int slice,
    int step,
    int rank,
    Action action,
    int chunk,
    long begin,
    long end,
    List<Integer> from,
    List<Integer> to) {
  /** Creates a step; the lists are copied. */
  public Step {
    from = List.copyOf(from);
    to = List.copyOf(to);
  }

  /** {@return the number of elements} */
  public long count() {
    return end - begin;
  }
}
