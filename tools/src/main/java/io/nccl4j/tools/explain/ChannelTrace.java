package io.nccl4j.tools.explain;

import io.nccl4j.schedule.RingSchedule;
import io.nccl4j.schedule.Schedule;
import io.nccl4j.schedule.Step;
import io.nccl4j.schedule.TreeSchedule;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * The steps of an all-reduce on one channel, in the order of the schedule's walk, with what every
 * rank holds after each.
 *
 * <p>A value is written as the ranks whose data it has, folded from the left: {@code 1+2+0} is rank
 * 0's data folded onto what rank 2 made of rank 1's, {@code 1+0+(3+2)} is what rank 2 made of rank
 * 3's folded onto the fold of 1 and 0. Rounding depends on that order.
 *
 * @param schedule what is explained
 * @param channel the channel, from 0
 * @param frames the steps, in order
 */
record ChannelTrace(Schedule schedule, int channel, List<Frame> frames) {
  /** More steps than this are no explanation any more. */
  static final long MOST_MOVES = 200_000;

  /**
   * Tells a schedule, channel by channel.
   *
   * @throws IllegalArgumentException if it has too many steps
   */
  static List<ChannelTrace> of(Schedule schedule) {
    long moves = moves(schedule);
    if (moves > MOST_MOVES) {
      throw new IllegalArgumentException(
          "these are %,d steps of single ranks; the most to be explained is %,d. Take a smaller --size or fewer --ranks"
              .formatted(moves, MOST_MOVES));
    }
    List<Teller> tellers =
        IntStream.range(0, schedule.channels())
            .mapToObj(channel -> new Teller(schedule.ranks()))
            .toList();
    schedule.walk(step -> tellers.get(step.channel()).take(step));
    List<ChannelTrace> stories = new ArrayList<>();
    for (int channel = 0; channel < tellers.size(); channel++) {
      stories.add(new ChannelTrace(schedule, channel, List.copyOf(tellers.get(channel).frames)));
    }
    return stories;
  }

  /** Returns at least how many steps there are, without walking: each slice that is sent is one. */
  private static long moves(Schedule schedule) {
    long moves = 0;
    for (int channel = 0; channel < schedule.channels(); channel++) {
      for (int rank = 0; rank < schedule.ranks(); rank++) {
        moves += schedule.slicesSent(channel, rank);
      }
    }
    return moves;
  }

  /** Returns how many chunks a loop has: one for each rank of a ring, one on a tree. */
  int chunks() {
    return schedule instanceof RingSchedule ? schedule.ranks() : 1;
  }

  /** Returns what every rank holds of every chunk after a frame, by rank and chunk. */
  String[][] holdings(int frame) {
    String[][] values = new String[schedule.ranks()][chunks()];
    for (int rank = 0; rank < values.length; rank++) {
      Arrays.fill(values[rank], Integer.toString(rank));
    }
    for (int f = frames.get(frame).opening(); f <= frame; f++) {
      for (Move move : frames.get(f).moves()) {
        values[move.step().rank()][move.step().chunk()] = move.value();
      }
    }
    return values;
  }

  /** Says which ring or tree the channel has. */
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

  /** Follows the steps of one channel and notes what they do to the data. */
  private static final class Teller {
    private final int ranks;
    private final List<Frame> frames = new ArrayList<>();
    // By sender and chunk: what it has sent last, which is what its receivers take next.
    private final Map<Long, String> sent = new HashMap<>();
    private final Map<Long, String> held = new HashMap<>();
    private Step last;
    private int opening;
    private List<Move> moves = new ArrayList<>();

    Teller(int ranks) {
      this.ranks = ranks;
    }

    void take(Step step) {
      boolean another = last == null || last.loop() != step.loop() || last.slice() != step.slice();
      if (another || last.step() != step.step()) {
        if (another) {
          opening = frames.size();
          sent.clear();
          held.clear();
        }
        moves = new ArrayList<>();
        frames.add(new Frame(step.loop(), step.slice(), step.step(), opening, moves));
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
      // The first fold has two operands, whose order makes no difference.
      StringBuilder value = new StringBuilder(received.getFirst()).append('+').append(own);
      for (String more : received.subList(1, received.size())) {
        value.append('+').append(more.contains("+") ? "(" + more + ")" : more);
      }
      return value.toString();
    }
  }
}
