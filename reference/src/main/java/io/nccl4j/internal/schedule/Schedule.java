package io.nccl4j.internal.schedule;

import java.util.function.Consumer;
import org.jspecify.annotations.NullMarked;

/**
 * The schedule of one all-reduce. It can be walked step by step. The traffic of a rank or a link is
 * computed without a walk, and so quickly even for a hundred thousand ranks.
 *
 * <p>Only data that is transferred is counted: a chunk without elements counts nothing, although
 * NCCL transfers an empty slice for it. A single rank transfers nothing.
 */
@NullMarked
public sealed interface Schedule permits RingSchedule, TreeSchedule {
  /** {@return the number of ranks} */
  int ranks();

  /** {@return the number of elements of the all-reduce} */
  long count();

  /** {@return the size of an element in bytes} */
  int elementBytes();

  /** {@return the number of channels that have elements} */
  int channels();

  /**
   * {@return the first element of a channel}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   */
  long begin(int channel);

  /**
   * {@return the end of a channel: the index after its last element}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   */
  long end(int channel);

  /**
   * {@return the number of successive transfers until every rank has the result of an element: on a
   * ring {@code 2 (n - 1)} for n ranks, on a tree twice its depth}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   */
  int hops(int channel);

  /**
   * Visits all steps of all ranks that have elements, ordered by channel, loop, slice, step and
   * rank, with the ranks in the order of the ring or the tree.
   *
   * @param visitor called for each step
   */
  void walk(Consumer<Step> visitor);

  /**
   * {@return the number of elements that a rank sends on a channel, counting repeated transfers}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   * @param rank the rank
   */
  long elementsSent(int channel, int rank);

  /**
   * {@return the number of slices that a rank sends on a channel, counting repeated transfers}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   * @param rank the rank
   */
  long slicesSent(int channel, int rank);

  /**
   * {@return the number of elements of the largest slice of a channel}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   */
  long largestSlice(int channel);

  /**
   * {@return the number of elements that one rank sends directly to another on a channel}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   * @param from the rank that sends
   * @param to the rank that receives
   */
  long elementsBetween(int channel, int from, int to);

  /**
   * {@return the number of bytes of data that a rank sends on all channels}
   *
   * @param rank the rank
   */
  default long bytesSent(int rank) {
    long elements = 0;
    for (int channel = 0; channel < channels(); channel++) {
      elements += elementsSent(channel, rank);
    }
    return elements * elementBytes();
  }
}
