package io.nccl4j.tools.explain;

import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Schedule;
import io.nccl4j.schedule.TreePattern;
import java.util.List;

/**
 * One algorithm's all-reduce and its stories, one for each channel.
 *
 * @param algorithm the algorithm
 * @param toy whether it is the smallest one that shows everything
 * @param layout how it is divided
 * @param schedule the all-reduce
 * @param stories its channels
 */
record Explanation(
    Algorithm algorithm, boolean toy, Layout layout, Schedule schedule, List<ChannelTrace> traces) {
  /** Makes the telling that a command line asks for. */
  static Explanation of(Algorithm algorithm, Flags flags) {
    Layout layout = Layout.defaults();
    if (!flags.order.isEmpty()) {
      layout = layout.withRingOrders(List.of(flags.order));
    }
    if (flags.ranksPerNode != null && flags.ranksPerNode > 1) {
      layout = layout.withNodes(flags.ranksPerNode, TreePattern.BALANCED_TREE);
    }
    if (flags.protocol != null) {
      layout = layout.withProtocol(flags.protocol);
    }
    if (flags.channels != null) {
      layout = layout.withChannels(flags.channels);
    }
    boolean toy = flags.size == null;
    if (toy) {
      layout = algorithm.toyLayout(layout);
    }
    long count = toy ? algorithm.toyCount(flags.ranks) : flags.size / Algorithm.ELEMENT_BYTES;
    Schedule schedule = algorithm.schedule(layout, flags.ranks, count);
    return new Explanation(algorithm, toy, layout, schedule, ChannelTrace.of(schedule));
  }

  /** Returns what one channel is called. */
  String name(ChannelTrace story) {
    return switch (algorithm) {
      case RING -> toy ? "ring" : "ring, channel " + story.channel();
      case TREE ->
          (layout.firstTree(story.channel()) ? "first tree" : "second tree")
              + (toy ? "" : ", channel " + story.channel());
    };
  }

  /** Returns what a frame is called among those of its channel. */
  String name(Frame frame) {
    if (toy) {
      return "step " + frame.step();
    }
    String outer = algorithm == Algorithm.RING ? "loop " : "chunk ";
    return outer + frame.loop() + ", slice " + frame.slice() + ", step " + frame.step();
  }

  /** Returns how many bytes each rank reduces. */
  long bytes() {
    return schedule.count() * schedule.elementBytes();
  }
}
