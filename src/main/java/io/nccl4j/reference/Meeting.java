package io.nccl4j.reference;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.NcclException;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Result;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Comparator;
import java.util.List;
import java.util.function.BooleanSupplier;

/**
 * Ranks of a world, and perhaps new ones, that come together to make new worlds of themselves: a
 * split, a shrink, a grow. Each gets its place in the world of its color.
 */
final class Meeting {
  /** The color of a rank that is to have no place. */
  static final int NO_COLOR = -1;

  /**
   * How often a waiting rank looks whether another has left the parent, which wakes nobody here.
   */
  private static final long LOOK_MILLIS = 100;

  private record Wish(int rank, int color, int key) {}

  private final String function;
  private final World parent;
  private final BitSet expected;
  private final Runnable over;
  private final List<Wish> wishes = new ArrayList<>();
  private Member[] places;
  private String failure;
  private BitSet missing;

  /**
   * Opens a meeting.
   *
   * @param expected who comes: ranks of the parent, and above those new ones
   * @param over runs once all have come
   */
  Meeting(String function, World parent, BitSet expected, Runnable over) {
    this.function = function;
    this.parent = parent;
    this.expected = expected;
    this.over = over;
  }

  /**
   * Waits for all who are expected.
   *
   * @param rank who comes
   * @param self the member of the parent that comes, or null for a new rank
   * @return the rank's place, or null without a color
   */
  synchronized Member join(
      int rank, Member self, int color, int key, Duration timeout, BooleanSupplier aborted) {
    checkFailed(rank);
    if (!absent().get(rank)) {
      throw new NcclInvalidUsageException(
          function,
          Result.INVALID_USAGE.code(),
          "rank " + rank + " is not expected, or has come already",
          "");
    }
    wishes.add(new Wish(rank, color, key));
    if (wishes.size() == expected.cardinality()) {
      places = place();
      over.run();
      notifyAll();
    }
    awaitPlaces(rank, self, timeout, aborted);
    return places[rank];
  }

  synchronized void wake() {
    notifyAll();
  }

  private void awaitPlaces(int rank, Member self, Duration timeout, BooleanSupplier aborted) {
    Deadline deadline = Deadline.after(timeout);
    while (places == null) {
      checkFailed(rank);
      if (aborted.getAsBoolean()) {
        fail("rank " + rank + " aborted while it was waiting in " + function, null);
        throw new CommunicatorAbortedException(function, "rank " + rank);
      }
      checkPresent(self);
      if (deadline.passed()) {
        throw timedOut(rank, timeout);
      }
      try {
        wait(deadline.millisLeft(LOOK_MILLIS));
      } catch (InterruptedException e) {
        if (places == null) {
          fail("rank " + rank + " was interrupted while it was waiting in " + function, null);
          throw ReferenceStream.interrupted(function);
        }
        Thread.currentThread().interrupt();
      }
    }
  }

  private void checkPresent(Member self) {
    if (self != null) {
      self.checkStays(function);
    }
    BitSet absent = absent();
    absent.clear(parent.size(), Math.max(parent.size(), absent.length()));
    for (int peer = absent.nextSetBit(0); peer >= 0; peer = absent.nextSetBit(peer + 1)) {
      if (parent.member(peer).left()) {
        String text = parent.member(peer).departure();
        fail(text, null);
        throw Fault.remote(function, text);
      }
    }
  }

  private NcclTimeoutException timedOut(int rank, Duration timeout) {
    BitSet absent = absent();
    String text = Member.ranks(absent) + " did not call " + function;
    fail("rank " + rank + " gave up after " + timeout.toMillis() / 1000.0 + " s: " + text, absent);
    return new NcclTimeoutException(function, timeout, text);
  }

  private void fail(String text, BitSet absent) {
    failure = text;
    missing = absent;
    notifyAll();
  }

  private void checkFailed(int rank) {
    if (failure == null) {
      return;
    }
    NcclException seen =
        missing == null || missing.get(rank)
            ? new NcclRemoteException(function, Result.REMOTE_ERROR.code(), failure, "")
            : new NcclTimeoutException(function, Result.TIMEOUT.code(), failure, "");
    throw seen;
  }

  private BitSet absent() {
    BitSet absent = (BitSet) expected.clone();
    wishes.forEach(wish -> absent.clear(wish.rank));
    return absent;
  }

  private Member[] place() {
    Member[] result = new Member[expected.length()];
    List<Wish> ordered = new ArrayList<>(wishes);
    ordered.sort(Comparator.comparingInt(Wish::key).thenComparingInt(Wish::rank));
    ordered.stream()
        .mapToInt(Wish::color)
        .filter(color -> color != NO_COLOR)
        .distinct()
        .forEach(color -> placeColor(ordered, color, result));
    return result;
  }

  private void placeColor(List<Wish> ordered, int color, Member[] result) {
    List<Wish> together = ordered.stream().filter(wish -> wish.color == color).toList();
    World world = new World(together.size(), parent.options());
    for (int rank = 0; rank < together.size(); rank++) {
      result[together.get(rank).rank] = world.member(rank);
    }
  }
}
