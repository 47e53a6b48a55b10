package io.nccl4j.tools.explain;

import io.nccl4j.internal.schedule.RingSchedule;
import io.nccl4j.internal.schedule.Schedule;
import io.nccl4j.internal.schedule.Step;
import io.nccl4j.internal.schedule.TreeSchedule;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * The steps of an all-reduce on one channel, in the order of the schedule's walk, and the value
 * that each rank holds after each step.
 *
 * <p>A value is written as the ranks whose data it contains, reduced from the left: in {@code
 * 1+2+0}, the data of rank 2 is added to that of rank 1, then that of rank 0; in {@code 1+0+(3+2)},
 * the sum of ranks 3 and 2 is added to the sum of ranks 1 and 0. Rounding depends on that order.
 *
 * @param schedule the schedule
 * @param channel the channel, from 0
 * @param frames the steps, in order
 */
record ChannelTrace(Schedule schedule, int channel, List<Frame> frames) {
  /** The largest number of steps that is explained. */
  static final long MAX_MOVES = 200_000;

  /**
   * Traces a schedule; returns one trace for each channel.
   *
   * @throws IllegalArgumentException if it has too many steps
   */
  static List<ChannelTrace> of(Schedule schedule) {
    long moves = moves(schedule);
    if (moves > MAX_MOVES) {
      throw new IllegalArgumentException(
          "%,d steps are too many, the limit is %,d; use a smaller --size or fewer --ranks"
              .formatted(moves, MAX_MOVES));
    }
    List<TraceBuilder> builders =
        IntStream.range(0, schedule.channels())
            .mapToObj(channel -> new TraceBuilder(schedule.ranks()))
            .toList();
    schedule.walk(step -> builders.get(step.channel()).add(step));
    List<ChannelTrace> traces = new ArrayList<>();
    for (int channel = 0; channel < builders.size(); channel++) {
      traces.add(new ChannelTrace(schedule, channel, List.copyOf(builders.get(channel).frames)));
    }
    return traces;
  }

  /**
   * Returns a lower bound of the number of steps, without a walk: each slice that is sent is one.
   */
  private static long moves(Schedule schedule) {
    long moves = 0;
    for (int channel = 0; channel < schedule.channels(); channel++) {
      for (int rank = 0; rank < schedule.ranks(); rank++) {
        moves += schedule.slicesSent(channel, rank);
      }
    }
    return moves;
  }

  /** Returns the number of chunks in a loop: one for each rank of a ring, one on a tree. */
  int chunks() {
    return schedule instanceof RingSchedule ? schedule.ranks() : 1;
  }

  /** Returns the values after a frame, by rank and chunk. */
  String[][] holdings(int frame) {
    String[][] values = new String[schedule.ranks()][chunks()];
    for (int rank = 0; rank < values.length; rank++) {
      Arrays.fill(values[rank], Integer.toString(rank));
    }
    for (int f = frames.get(frame).firstFrame(); f <= frame; f++) {
      for (Move move : frames.get(f).moves()) {
        values[move.step().rank()][move.step().chunk()] = move.value();
      }
    }
    return values;
  }

  /** Describes the ring or tree of the channel. */
  String shape() {
    return switch (schedule) {
      case RingSchedule ring -> ring.ring(channel).toString();
      case TreeSchedule tree ->
          IntStream.range(0, tree.ranks())
              .filter(rank -> tree.tree(channel).children(rank) > 0)
              .mapToObj(rank -> rank + " over " + children(tree, rank))
              .collect(
                  Collectors.joining(
                      "; ", "tree with root " + tree.tree(channel).root() + ": ", ""));
    };
  }

  private String children(TreeSchedule tree, int rank) {
    return IntStream.range(0, tree.tree(channel).children(rank))
        .mapToObj(i -> Integer.toString(tree.tree(channel).child(rank, i)))
        .collect(Collectors.joining(", "));
  }

  /** Records the steps of one channel and the values that they produce. */
  private static final class TraceBuilder {
    private final int ranks;
    private final List<Frame> frames = new ArrayList<>();
    // By sender and chunk: the last value sent, which its receivers receive next.
    private final Map<Long, String> sent = new HashMap<>();
    private final Map<Long, String> held = new HashMap<>();
    private Step last;
    private int firstFrame;
    private List<Move> moves = new ArrayList<>();

    TraceBuilder(int ranks) {
      this.ranks = ranks;
    }

    void add(Step step) {
      boolean newSlice = last == null || last.loop() != step.loop() || last.slice() != step.slice();
      if (newSlice || last.step() != step.step()) {
        if (newSlice) {
          firstFrame = frames.size();
          sent.clear();
          held.clear();
        }
        moves = new ArrayList<>();
        frames.add(new Frame(step.loop(), step.slice(), step.step(), firstFrame, moves));
      }
      last = step;
      String before =
          held.getOrDefault(key(step.rank(), step.chunk()), Integer.toString(step.rank()));
      String value = value(step);
      held.put(key(step.rank(), step.chunk()), value);
      if (step.action().sends()) {
        sent.put(key(step.rank(), step.chunk()), value);
      }
      moves.add(new Move(step, value, !value.equals(before)));
    }

    private long key(int rank, int chunk) {
      return (long) rank * ranks + chunk;
    }

    private String value(Step step) {
      String own = Integer.toString(step.rank());
      if (!step.action().receives()) {
        return own;
      }
      List<String> received =
          step.from().stream().map(from -> sent.get(key(from, step.chunk()))).toList();
      if (!step.action().reduces()) {
        return received.getFirst();
      }
      // The order of the two operands of the first reduction makes no difference.
      StringBuilder value = new StringBuilder(received.getFirst()).append('+').append(own);
      for (String more : received.subList(1, received.size())) {
        value.append('+').append(more.contains("+") ? "(" + more + ")" : more);
      }
      return value.toString();
    }
  }
}
