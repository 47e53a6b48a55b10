package io.nccl4j.tools.explain;

import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import io.nccl4j.schedule.RingSchedule;
import io.nccl4j.schedule.Schedule;
import io.nccl4j.schedule.TreeSchedule;

/** What can be explained. */
enum Algorithm {
  /** Around the ring. */
  RING {
    @Override
    Layout toyLayout(Layout layout) {
      return layout
          .withProtocol(Protocol.LL)
          .withChannels(1)
          .withChunkBytes(Protocol.LL.grainBytes());
    }

    @Override
    long toyCount(int ranks) {
      return (long) ranks * Protocol.LL.grainBytes() / ELEMENT_BYTES;
    }

    @Override
    Schedule schedule(Layout layout, int ranks, long count) {
      return new RingSchedule(layout, ranks, count, ELEMENT_BYTES);
    }
  },
  /** Up and down the two trees. */
  TREE {
    @Override
    Layout toyLayout(Layout layout) {
      return layout.withProtocol(Protocol.LL).withChannels(2);
    }

    @Override
    long toyCount(int ranks) {
      // The least of which each tree gets a half.
      return (8 << 10) / ELEMENT_BYTES;
    }

    @Override
    Schedule schedule(Layout layout, int ranks, long count) {
      return new TreeSchedule(layout, ranks, count, ELEMENT_BYTES);
    }
  };

  /** Elements are float32. */
  static final int ELEMENT_BYTES = 4;

  /** Changes a layout so that there is one loop of one slice. */
  abstract Layout toyLayout(Layout layout);

  /** Returns how many elements fill that loop. */
  abstract long toyCount(int ranks);

  abstract Schedule schedule(Layout layout, int ranks, long count);
}
