package io.nccl4j.schedule;

import java.util.List;

/**
 * What one rank does to one slice in one step: {@code rank} receives the elements from {@code
 * begin} to before {@code end} from {@code from}, does what {@code action} says, and sends to
 * {@code to}.
 *
 * @param channel the channel, from 0
 * @param loop on a ring the loop, on a tree the chunk, from 0
 * @param slice the slice of the chunk, from 0
 * @param step the number of the step, from 0: what is received in a step was sent in an earlier
 *     one; on a ring in the one before
 * @param rank the rank
 * @param action what the rank does
 * @param chunk the chunk of the loop, from 0; on a tree always 0
 * @param begin the first element of the slice
 * @param end the element after its last one
 * @param from the ranks that it receives from, in the order in which it folds what they sent
 * @param to the ranks that it sends to
 */
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
  /** Makes a step; the lists are copied. */
  public Step {
    from = List.copyOf(from);
    to = List.copyOf(to);
  }

  /** {@return the number of elements} */
  public long count() {
    return end - begin;
  }
}
