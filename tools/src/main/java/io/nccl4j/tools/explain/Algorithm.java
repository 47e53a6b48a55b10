package io.nccl4j.tools.explain;

import io.nccl4j.internal.schedule.RingSchedule;
import io.nccl4j.internal.schedule.Schedule;
import io.nccl4j.internal.schedule.TreeSchedule;
import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;

/** The algorithms that can be explained. */
enum Algorithm {
  /** A ring. */
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
  /** Two trees. */
  TREE {
    @Override
    Layout toyLayout(Layout layout) {
      return layout.withProtocol(Protocol.LL).withChannels(2);
    }

    @Override
    long toyCount(int ranks) {
      // The smallest size that is split between the two trees.
      return (8 << 10) / ELEMENT_BYTES;
    }

    @Override
    Schedule schedule(Layout layout, int ranks, long count) {
      return new TreeSchedule(layout, ranks, count, ELEMENT_BYTES);
    }
  };

  /** Elements are float32. */
  static final int ELEMENT_BYTES = 4;

  /** Returns a layout with a single loop of a single slice. */
  abstract Layout toyLayout(Layout layout);

  /** Returns the number of elements in that loop. */
  abstract long toyCount(int ranks);

  abstract Schedule schedule(Layout layout, int ranks, long count);
}
