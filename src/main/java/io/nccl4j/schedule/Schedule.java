package io.nccl4j.schedule;

import java.util.function.Consumer;

/**
 * One all-reduce, with all that decides who does what with which elements. It can be walked step by
 * step, or asked what a rank or a link has to carry, which takes no walk and so is quick for a
 * hundred thousand ranks.
 *
 * <p>Counts are of data that really moves: where a chunk has no elements nothing is counted, though
 * NCCL hands over an empty slice there. A single rank moves nothing.
 */
public sealed interface Schedule permits RingSchedule, TreeSchedule {
  /** {@return the number of ranks} */
  int ranks();

  /** {@return the number of elements of the all-reduce} */
  long count();

  /** {@return the size of an element in bytes} */
  int elementBytes();

  /** {@return how many channels have elements} */
  int channels();

  /**
   * {@return the first element of a channel}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   */
  long begin(int channel);

  /**
   * {@return the element after a channel's last one}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   */
  long end(int channel);

  /**
   * {@return how many loops a channel makes, or on a tree how many chunks it has}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   */
  long loops(int channel);

  /**
   * {@return how many times an element is handed over, one time after the other, until every rank
   * has it: on a ring twice the number of ranks less 2, on a tree twice its depth}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   */
  int hops(int channel);

  /**
   * Walks through all steps of all ranks: channel after channel, in each loop after loop, slice
   * after slice, step after step, rank after rank as they stand in the ring or the tree.
   *
   * @param visitor is given each step that has elements
   */
  void walk(Consumer<Step> visitor);

  /**
   * {@return how many elements a rank sends on a channel, counted each time}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   * @param rank the rank
   */
  long elementsSent(int channel, int rank);

  /**
   * {@return how many slices a rank sends on a channel, counted each time}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   * @param rank the rank
   */
  long slicesSent(int channel, int rank);

  /**
   * {@return how many elements the largest slice of a channel has: that of its first chunk}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   */
  long largestSlice(int channel);

  /**
   * {@return how many elements go directly from one rank to another on a channel}
   *
   * @param channel the channel, from 0, less than {@link #channels()}
   * @param from the rank that sends
   * @param to the rank that receives
   */
  long elementsBetween(int channel, int from, int to);

  /**
   * {@return how many bytes of data a rank sends on all channels}
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

  /**
   * {@return how many bytes of data go directly from one rank to another on all channels}
   *
   * @param from the rank that sends
   * @param to the rank that receives
   */
  default long bytesBetween(int from, int to) {
    long elements = 0;
    for (int channel = 0; channel < channels(); channel++) {
      elements += elementsBetween(channel, from, to);
    }
    return elements * elementBytes();
  }
}
