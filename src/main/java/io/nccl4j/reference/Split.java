package io.nccl4j.reference;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.NcclException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Result;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Comparator;
import java.util.List;
import java.util.function.BooleanSupplier;

/** One split of a world: the ranks meet, and each gets its place in the world of its color. */
final class Split {
  /** The color of a rank that is to have no place. */
  static final int NO_COLOR = -1;

  /**
   * How often a waiting rank looks whether another has left the parent, which wakes nobody here.
   */
  private static final long LOOK_MILLIS = 100;

  private record Wish(int rank, int color, int key) {}

  private final World parent;
  private final long number;
  private final List<Wish> wishes = new ArrayList<>();
  private Member[] places;
  private String failure;
  private BitSet missing;

  Split(World parent, long number) {
    this.parent = parent;
    this.number = number;
  }

  /**
   * Waits for all ranks of the parent.
   *
   * @return the rank's place, or null without a color
   */
  synchronized Member join(
      Member rank, int color, int key, Duration timeout, BooleanSupplier aborted) {
    checkFailed(rank.rank());
    wishes.add(new Wish(rank.rank(), color, key));
    if (wishes.size() == parent.size()) {
      places = place();
      parent.forgetSplit(number);
      notifyAll();
    }
    awaitPlaces(rank, timeout, aborted);
    return places[rank.rank()];
  }

  synchronized void wake() {
    notifyAll();
  }

  private void awaitPlaces(Member rank, Duration timeout, BooleanSupplier aborted) {
    Deadline deadline = Deadline.after(timeout);
    while (places == null) {
      checkFailed(rank.rank());
      if (aborted.getAsBoolean()) {
        fail("rank " + rank.rank() + " aborted while it was splitting", null);
        throw new CommunicatorAbortedException("split", rank.toString());
      }
      checkPresent(rank);
      if (deadline.passed()) {
        throw timedOut(rank.rank(), timeout);
      }
      try {
        wait(deadline.millisLeft(LOOK_MILLIS));
      } catch (InterruptedException e) {
        if (places == null) {
          fail("rank " + rank.rank() + " was interrupted while it was splitting", null);
          throw ReferenceStream.interrupted("split");
        }
        Thread.currentThread().interrupt();
      }
    }
  }

  private void checkPresent(Member rank) {
    rank.checkNotAborted("split");
    BitSet absent = absent();
    for (int peer = absent.nextSetBit(0); peer >= 0; peer = absent.nextSetBit(peer + 1)) {
      if (parent.member(peer).gone()) {
        String text = parent.member(peer).departure();
        fail(text, null);
        throw Fault.remote("split", text);
      }
    }
  }

  private NcclTimeoutException timedOut(int rank, Duration timeout) {
    BitSet absent = absent();
    String text = Member.ranks(absent) + " did not call split";
    fail("rank " + rank + " gave up after " + timeout.toMillis() / 1000.0 + " s: " + text, absent);
    return new NcclTimeoutException("split", timeout, text);
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
            ? new NcclRemoteException("split", Result.REMOTE_ERROR.code(), failure, "")
            : new NcclTimeoutException("split", Result.TIMEOUT.code(), failure, "");
    throw seen;
  }

  private BitSet absent() {
    BitSet absent = new BitSet();
    absent.set(0, parent.size());
    wishes.forEach(wish -> absent.clear(wish.rank));
    return absent;
  }

  private Member[] place() {
    Member[] result = new Member[parent.size()];
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
