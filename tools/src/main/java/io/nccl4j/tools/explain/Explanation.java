package io.nccl4j.tools.explain;

import io.nccl4j.internal.schedule.Schedule;
import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.TreePattern;
import java.util.List;

/**
 * An all-reduce with one algorithm, and its traces, one for each channel.
 *
 * @param algorithm the algorithm
 * @param toy whether it is the smallest all-reduce that shows all steps
 * @param layout the division into channels, loops, chunks and slices
 * @param schedule the schedule
 * @param traces the traces
 */
record Explanation(
    Algorithm algorithm, boolean toy, Layout layout, Schedule schedule, List<ChannelTrace> traces) {
  /** Creates the explanation for a command line. */
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

  /** Returns the name of a channel. */
  String name(ChannelTrace trace) {
    return switch (algorithm) {
      case RING -> toy ? "ring" : "ring, channel " + trace.channel();
      case TREE ->
          (layout.firstTree(trace.channel()) ? "first tree" : "second tree")
              + (toy ? "" : ", channel " + trace.channel());
    };
  }

  /** Returns the name of a frame. */
  String name(Frame frame) {
    if (toy) {
      return "step " + frame.step();
    }
    String outer = algorithm == Algorithm.RING ? "loop " : "chunk ";
    return outer + frame.loop() + ", slice " + frame.slice() + ", step " + frame.step();
  }

  /** Returns the number of bytes that each rank reduces. */
  long bytes() {
    return schedule.count() * schedule.elementBytes();
  }
}
