package io.nccl4j.reference;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.FailureDetails;
import io.nccl4j.NcclException;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Result;
import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.net.ProtocolException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BooleanSupplier;

/**
 * Ranks that come together to make new worlds of themselves: to connect, split, shrink or grow.
 * Each gets its seat in the world of its color.
 *
 * <p>One process convenes the meeting: it knows who has come, and decides. In the other processes
 * ranks attend: they tell the one that convenes, by its {@link Chair}, and hear how it stands.
 */
final class Meeting {
  /** The color of a rank that is to have no seat. */
  static final int NO_COLOR = -1;

  /** How often a waiting rank looks whether it was aborted. */
  private static final long LOOK_MILLIS = 100;

  /**
   * What a rank brings.
   *
   * @param at the process that it is in
   */
  record Wish(int rank, int color, int key, Location at) {
    static Wish read(DataInput in) throws IOException {
      return new Wish(in.readInt(), in.readInt(), in.readInt(), Location.read(in));
    }

    void write(DataOutput out) throws IOException {
      out.writeInt(rank);
      out.writeInt(color);
      out.writeInt(key);
      at.write(out);
    }
  }

  /**
   * What a rank takes away.
   *
   * @param rank its number in the new world
   */
  record Seat(Plan plan, int rank) {}

  /** The process that convenes a meeting, as seen from another. */
  interface Chair {
    /**
     * Says that a rank has come.
     *
     * @param expected how many are to come
     */
    void arrive(int expected, Wish wish);

    /** Says that a rank waits no longer, and why. */
    void giveUp(int expected, String text, BitSet missing);

    /** Says how the process has gone that convenes; null while it has not. */
    String departure();
  }

  /** Another process that wants to know how a meeting stands. */
  interface Audience {
    void told(int expected, Message.Body state);

    void refused(int rank, String text);
  }

  /** What is done when a meeting is over. */
  interface End {
    void over(boolean placed);
  }

  private final String function;
  private final Secret secret;
  private final World parent;
  private final BitSet expected;
  private final End end;
  private final List<Wish> wishes = new ArrayList<>();
  private final List<Audience> audiences = new ArrayList<>();
  private final Map<Integer, String> refusals = new HashMap<>();
  private final BitSet absent;
  private Chair chair;
  private boolean answered;
  private Map<Integer, Seat> seats;
  private String failure;
  private String refusal = "";
  private BitSet missing;

  /**
   * Opens a meeting.
   *
   * @param secret what the new worlds' processes show each other
   * @param expected who comes: ranks of the parent, and above those new ones
   * @param parent the world that is left, or null
   * @param end runs once all have come, or one has failed
   */
  Meeting(String function, Secret secret, BitSet expected, World parent, End end) {
    this.function = function;
    this.secret = secret;
    this.parent = parent;
    this.expected = expected;
    this.end = end;
    this.absent = (BitSet) expected.clone();
  }

  String function() {
    return function;
  }

  /** Says that another process convenes. */
  void attend(Chair convener) {
    chair = convener;
  }

  /** Lets another process know how the meeting stands, from now on. */
  synchronized void addAudience(Audience audience) {
    audiences.add(audience);
    if (over()) {
      audience.told(expected.cardinality(), this::write);
    }
  }

  private boolean over() {
    return seats != null || failure != null;
  }

  /**
   * Takes a rank in; who convenes must not be waited for here.
   *
   * @throws NcclException if the rank cannot take part
   */
  void arrive(Wish wish) {
    if (chair != null) {
      chair.arrive(expected.cardinality(), wish);
      return;
    }
    synchronized (this) {
      checkFailed(wish.rank(), "");
      if (!absent.get(wish.rank())) {
        throw refused(
            expected.get(wish.rank())
                ? "rank " + wish.rank() + " has come already; every rank comes once"
                : "rank " + wish.rank() + " is not expected");
      }
      wishes.add(wish);
      absent.clear(wish.rank());
      if (absent.isEmpty()) {
        seats = place();
        end.over(true);
      }
      tell();
    }
    checkPresent();
  }

  private NcclInvalidUsageException refused(String text) {
    return new NcclInvalidUsageException(function, Result.INVALID_USAGE.code(), text, "");
  }

  private void tell() {
    notifyAll();
    for (Audience audience : audiences) {
      audience.told(expected.cardinality(), this::write);
    }
  }

  /** Makes waiting ranks look whether they have been aborted. */
  synchronized void wake() {
    notifyAll();
  }

  /**
   * Waits for all who are expected.
   *
   * @param rank who waits
   * @param self the member of the parent that waits, or null for a new rank
   * @param who names the communicator that the rank is to get
   * @return the rank's seat, or null without a color
   */
  synchronized Seat await(
      int rank, Member self, Deadline deadline, BooleanSupplier aborted, String who) {
    String name = self == null ? who : self.toString();
    while (seats == null) {
      checkFailed(rank, name);
      if (refusals.containsKey(rank)) {
        throw refused(refusals.get(rank));
      }
      if (aborted.getAsBoolean()) {
        giveUp("rank " + rank + " aborted while it was waiting in " + function, null);
        throw new CommunicatorAbortedException(function, who);
      }
      if (self != null) {
        self.checkStays(function);
      }
      if (deadline.passed()) {
        throw timedOut(rank, deadline.timeout(), name);
      }
      try {
        wait(deadline.millisLeft(LOOK_MILLIS));
      } catch (InterruptedException e) {
        if (seats == null) {
          giveUp("rank " + rank + " was interrupted while it was waiting in " + function, null);
          throw ReferenceStream.interrupted(function);
        }
        Thread.currentThread().interrupt();
      }
    }
    return seats.get(rank);
  }

  private NcclException timedOut(int rank, Duration timeout, String name) {
    boolean silent = chair != null && !answered;
    BitSet waitedFor = silent ? ranksOfChair() : (BitSet) absent.clone();
    String text = silent ? chair + " did not answer" : absence();
    giveUp(
        "rank " + rank + " gave up after " + timeout.toMillis() / 1000.0 + " s: " + text,
        silent ? null : (BitSet) absent.clone());
    return new NcclTimeoutException(function, timeout, text)
        .initDetails(FailureDetails.of(name, left(), waitedFor));
  }

  /** Returns the ranks of the process that convenes; none where ranks come by an id. */
  private BitSet ranksOfChair() {
    BitSet ranks = new BitSet();
    if (parent != null) {
      Plan plan = parent.plan();
      ranks.or(plan.ranksOf(plan.processOf(expected.nextSetBit(0))));
      ranks.and(expected);
    }
    return ranks;
  }

  /** Returns those who were expected and have left the parent. */
  private BitSet left() {
    BitSet left = new BitSet();
    if (parent != null) {
      expected.stream()
          .filter(rank -> rank < parent.size() && parent.peer(rank).left())
          .forEach(left::set);
    }
    return left;
  }

  private String absence() {
    return parent == null
        ? Member.ranks(absent) + " of " + expected.cardinality() + " did not come" + refusal
        : Member.ranks(absent) + " did not call " + function;
  }

  /** Tells whoever waits in vain of somebody who came and was not let in. */
  synchronized void noteRefusal(String text) {
    refusal = "; refused: " + text;
  }

  /** Ends the meeting for all for a reason of one rank, also where another process convenes. */
  synchronized void giveUp(String text, BitSet whoIsMissing) {
    if (chair != null && !over()) {
      chair.giveUp(expected.cardinality(), text, whoIsMissing);
    }
    fail(text, whoIsMissing);
  }

  /** Ends the meeting for all, unless it is over. */
  synchronized void fail(String text, BitSet whoIsMissing) {
    if (over()) {
      return;
    }
    failure = text;
    missing = whoIsMissing;
    end.over(false);
    tell();
  }

  /** Ends the meeting if somebody has gone who is needed. */
  synchronized void checkPresent() {
    if (over()) {
      return;
    }
    if (chair != null) {
      String departure = chair.departure();
      if (departure != null) {
        fail(departure, null);
      }
    } else if (parent != null) {
      for (int rank = expected.nextSetBit(0);
          rank >= 0 && rank < parent.size();
          rank = expected.nextSetBit(rank + 1)) {
        Peer peer = parent.peer(rank);
        if (absent.get(rank) ? peer.left() : peer.presence() == Peer.Presence.LOST) {
          fail(peer.departure(), null);
          return;
        }
      }
    }
  }

  private void checkFailed(int rank, String name) {
    if (failure == null) {
      return;
    }
    NcclException seen =
        missing == null || missing.get(rank)
            ? new NcclRemoteException(function, Result.REMOTE_ERROR.code(), failure, "")
            : new NcclTimeoutException(function, Result.TIMEOUT.code(), failure, "");
    BitSet waitedFor = (BitSet) expected.clone();
    waitedFor.and(missing == null ? new BitSet() : missing);
    throw seen.initDetails(FailureDetails.of(name, left(), waitedFor));
  }

  private Map<Integer, Seat> place() {
    Map<Integer, Seat> result = new HashMap<>();
    List<Wish> ordered = new ArrayList<>(wishes);
    ordered.sort(Comparator.comparingInt(Wish::key).thenComparingInt(Wish::rank));
    ordered.stream()
        .mapToInt(Wish::color)
        .filter(color -> color != NO_COLOR)
        .distinct()
        .forEach(color -> placeColor(ordered, color, result));
    return result;
  }

  private void placeColor(List<Wish> ordered, int color, Map<Integer, Seat> result) {
    List<Wish> together = ordered.stream().filter(wish -> wish.color == color).toList();
    Plan plan = Plan.of(secret, together.stream().map(Wish::at).toList());
    for (int rank = 0; rank < together.size(); rank++) {
      result.put(together.get(rank).rank, new Seat(plan, rank));
    }
  }

  /** Returns a failure of connecting, its ranks by the numbers with which they came here. */
  synchronized NcclException renumbered(NcclException failure, Plan plan, String name) {
    return NcclException.copyOf(
        failure,
        FailureDetails.of(
            name, cameAs(plan, failure.failedRanks()), cameAs(plan, failure.missingRanks())));
  }

  private BitSet cameAs(Plan plan, Set<Integer> ranks) {
    BitSet came = new BitSet();
    seats.forEach((rank, seat) -> came.set(rank, seat.plan == plan && ranks.contains(seat.rank)));
    return came;
  }

  /** Writes how the meeting stands. */
  private synchronized void write(DataOutput out) throws IOException {
    Message.writeText(out, failure);
    Message.writeBits(out, failure == null ? absent : missing);
    out.writeBoolean(seats != null);
    if (seats == null) {
      return;
    }
    List<Plan> plans = seats.values().stream().map(Seat::plan).distinct().toList();
    out.writeInt(plans.size());
    for (Plan plan : plans) {
      plan.write(out);
    }
    out.writeInt(seats.size());
    for (Map.Entry<Integer, Seat> seat : seats.entrySet()) {
      out.writeInt(seat.getKey());
      out.writeInt(plans.indexOf(seat.getValue().plan));
      out.writeInt(seat.getValue().rank);
    }
  }

  /** Hears from the process that convenes how the meeting stands. */
  void hear(DataInput in) throws IOException {
    String toldFailure = Message.readText(in);
    BitSet bits = Message.readBits(in);
    Map<Integer, Seat> toldSeats = in.readBoolean() ? readSeats(in) : null;
    if (toldSeats != null && !function.equals(Occasion.SPLIT)) {
      // Only a split may leave out ranks, those without a color.
      BitSet without = (BitSet) expected.clone();
      toldSeats.keySet().stream().filter(rank -> rank >= 0).forEach(without::clear);
      if (!without.isEmpty()) {
        throw new ProtocolException("it has no seat for " + Member.ranks(without));
      }
    }
    synchronized (this) {
      answered = true;
      if (over()) {
        return;
      }
      if (toldFailure != null) {
        fail(toldFailure, bits);
        return;
      }
      absent.clear();
      if (bits != null) {
        absent.or(bits);
      }
      seats = toldSeats;
      if (seats != null) {
        end.over(true);
      }
      tell();
    }
  }

  private static Map<Integer, Seat> readSeats(DataInput in) throws IOException {
    List<Plan> plans = new ArrayList<>();
    for (int left = Message.count(in); left > 0; left--) {
      plans.add(Plan.read(in));
    }
    Map<Integer, Seat> seats = new HashMap<>();
    for (int left = Message.count(in); left > 0; left--) {
      int rank = in.readInt();
      int plan = in.readInt();
      int number = in.readInt();
      if (plan < 0 || plan >= plans.size() || number < 0 || number >= plans.get(plan).size()) {
        throw new ProtocolException("rank " + rank + " has a seat in no plan");
      }
      seats.put(rank, new Seat(plans.get(plan), number));
    }
    return seats;
  }

  /** Hears that a rank cannot take part. */
  synchronized void hearRefusal(int rank, String text) {
    answered = true;
    refusals.put(rank, text);
    notifyAll();
    audiences.forEach(audience -> audience.refused(rank, text));
  }
}
