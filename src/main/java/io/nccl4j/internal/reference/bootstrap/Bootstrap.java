package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.FailureDetails;
import io.nccl4j.NcclException;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.NcclResult;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.internal.reference.transport.Presence;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.RankSets;
import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.net.ProtocolException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;

/**
 * Ranks that come together to make new worlds of themselves: to connect, split, shrink or grow.
 * Each gets its seat in the world of its color.
 *
 * <p>One process convenes the meeting: it knows who has come, and decides. In the other processes
 * ranks attend: they tell the one that convenes, by its {@link Coordinator}, and hear how it
 * stands.
 *
 * <p>A meeting is done once every rank has connected with the other ranks of its new world. If a
 * rank fails or leaves before that, the meeting fails for all ranks, so that they all call again in
 * the same communicator. Two cases remain. The convening process may die while it announces that
 * the meeting is done: ranks that have not received the announcement fail, and the others have a
 * new world without the ranks of that process. And a rank may time out, be interrupted or be
 * aborted just before it receives the announcement: the others then have a new world without that
 * rank.
 */
public final class Bootstrap {
  /** The color of a rank that is to have no seat. */
  public static final int NO_COLOR = -1;

  /** How often a waiting rank looks whether it was aborted. */
  private static final long LOOK_MILLIS = 100;

  /**
   * What a rank waits for in vain.
   *
   * @param text says so
   * @param ranks those that are to blame; null where nobody knows
   */
  record MissingRanks(String text, BitSet ranks) {}

  /**
   * What a rank brings.
   *
   * @param at the process that it is in
   */
  public record MembershipRequest(int rank, int color, int key, ProcessAddress process) {
    public static MembershipRequest read(DataInput in) throws IOException {
      return new MembershipRequest(
          in.readInt(), in.readInt(), in.readInt(), ProcessAddress.read(in));
    }

    public void write(DataOutput out) throws IOException {
      out.writeInt(rank);
      out.writeInt(color);
      out.writeInt(key);
      process.write(out);
    }
  }

  /**
   * What a rank takes away.
   *
   * @param rank its number in the new world
   */
  public record RankAssignment(RankMap rankMap, int rank) {}

  /** The process that convenes a meeting, as seen from another. */
  public interface Coordinator {
    /**
     * Says that a rank has come.
     *
     * @param expected how many are to come
     */
    void arrive(int expected, MembershipRequest wish);

    /** Says that a rank has connected with the other ranks of its new world. */
    void confirm(int expected, int rank);

    /** Says that a rank waits no longer, and why. */
    void giveUp(int expected, String text, BitSet missing);

    /** Says how the process has gone that convenes; null while it has not. */
    String departure();
  }

  /** Another process that wants to know how a meeting stands. */
  public interface StateListener {
    void onState(int expected, Message.Body state);

    void onRejected(int rank, String text);
  }

  /** The communicator whose ranks meet, as far as a meeting needs it. */
  public interface Parent {
    /** Returns the number of ranks. */
    int size();

    RankMap rankMap();

    Presence presence(int rank);

    /** Says how a rank has gone. */
    String departure(int rank);

    /** Asks the other processes how far their ranks are, unless that was done just before. */
    void ask();

    /**
     * Returns those of some ranks whose processes do not answer.
     *
     * @param timeoutNanos how long their answers are waited for in all
     */
    BitSet silent(BitSet ranks, long timeoutNanos);

    /** Names ranks, and the processes of those that are of others. */
    String describe(BitSet ranks);

    /** Returns how a meeting is attended that another process convenes; null for this process. */
    Coordinator coordinator(int process, BootstrapKey occasion);

    /** Returns how another process learns of a meeting; null for this process. */
    StateListener stateListener(int process, BootstrapKey occasion);
  }

  /** What is done when a meeting is over. */
  public interface CompletionListener {
    void onComplete(boolean done);
  }

  private final String function;
  private final Secret secret;
  private final Parent parent;
  private final BitSet expected;
  private final CompletionListener onComplete;
  private final List<MembershipRequest> requests = new ArrayList<>();
  private final List<StateListener> listeners = new ArrayList<>();
  private final Map<Integer, String> rejections = new HashMap<>();
  // A set of bits would be as large as the largest number that another process names.
  private final Set<Integer> sent = new HashSet<>();
  // The ranks that have not come or, once there are seats, that have not connected.
  private final BitSet awaited;
  private Coordinator coordinator;
  private boolean answered;
  private Map<Integer, RankAssignment> assignments;
  private boolean done;
  private String failure;
  private String lateRejection = "";
  private BitSet missing;

  /**
   * Opens a meeting.
   *
   * @param secret what the new worlds' processes show each other
   * @param expected who comes: ranks of the parent, and above those new ones
   * @param parent the communicator that the ranks come from, or null
   * @param end runs once all have connected, or one has failed
   */
  public Bootstrap(
      String function, Secret secret, BitSet expected, Parent parent, CompletionListener end) {
    this.function = function;
    this.secret = secret;
    this.parent = parent;
    this.expected = expected;
    this.onComplete = end;
    this.awaited = (BitSet) expected.clone();
  }

  public String function() {
    return function;
  }

  /** Returns the ranks that have not come or, once there are seats, not connected; for tests. */
  public synchronized BitSet awaited() {
    return (BitSet) awaited.clone();
  }

  /** Says that another process convenes. */
  void follow(Coordinator convener) {
    coordinator = convener;
  }

  /** Lets another process know how the meeting stands, from now on. */
  synchronized void addListener(StateListener audience) {
    listeners.add(audience);
    if (assignments != null || failure != null) {
      audience.onState(expected.cardinality(), out -> write(out, true));
    }
  }

  private boolean over() {
    return done || failure != null;
  }

  /** Throws if it is too late for a rank to arrive. */
  synchronized void checkNotOver(int rank) {
    checkFailed(rank, "");
    if (done) {
      throw refusedAgain(rank);
    }
  }

  private NcclInvalidUsageException refusedAgain(int rank) {
    return refused("rank " + rank + " has come already; every rank comes once");
  }

  /**
   * Takes a rank in; who convenes must not be waited for here.
   *
   * @throws NcclException if the rank cannot take part
   */
  public void arrive(MembershipRequest wish) {
    if (coordinator != null) {
      noteSent(wish.rank());
      coordinator.arrive(expected.cardinality(), wish);
      // It may have gone before this meeting was opened.
      checkPresent();
      return;
    }
    synchronized (this) {
      checkFailed(wish.rank(), "");
      if (assignments != null || !awaited.get(wish.rank())) {
        throw expected.get(wish.rank())
            ? refusedAgain(wish.rank())
            : refused("rank " + wish.rank() + " is not expected");
      }
      requests.add(wish);
      awaited.clear(wish.rank());
      boolean complete = awaited.isEmpty();
      if (complete) {
        assignments = assignRanks();
        if (assignments.values().stream().anyMatch(seat -> seat.rankMap.processes().size() > 1)) {
          awaited.or(expected);
        } else {
          finish();
        }
      }
      notifyListeners(complete);
    }
    checkPresent();
  }

  /** Notes that a rank comes to another process's meeting; the answers there name ranks alone. */
  private synchronized void noteSent(int rank) {
    if (!sent.add(rank)) {
      throw refusedAgain(rank);
    }
  }

  /** Notes that a rank has connected with the other ranks of its new world. */
  public synchronized void confirm(int rank) {
    if (assignments == null || over()) {
      return;
    }
    if (coordinator != null) {
      answered = false;
      coordinator.confirm(expected.cardinality(), rank);
      return;
    }
    awaited.clear(rank);
    if (awaited.isEmpty()) {
      finish();
    }
    notifyListeners(false);
  }

  private void finish() {
    done = true;
    onComplete.onComplete(true);
  }

  private NcclInvalidUsageException refused(String text) {
    return new NcclInvalidUsageException(function, NcclResult.INVALID_USAGE.code(), text, "");
  }

  private void notifyListeners(boolean withSeats) {
    notifyAll();
    for (StateListener listener : listeners) {
      listener.onState(expected.cardinality(), out -> write(out, withSeats));
    }
  }

  /** Makes waiting ranks look whether what they wait for has come, or they have been aborted. */
  public synchronized void wake() {
    notifyAll();
  }

  /** Waits until all ranks have come; returns the rank's seat, or null without a color. */
  public synchronized RankAssignment awaitAssignment(Participant participant) {
    await(participant, () -> assignments != null, () -> shortfall(participant));
    return assignments.get(participant.rank());
  }

  /** Waits until all ranks have connected. */
  public synchronized void awaitDone(Participant participant) {
    await(participant, () -> done, () -> shortfall(participant));
  }

  /**
   * Waits until something holds, which is looked at after each {@link #wake}.
   *
   * @param late says what is missing when the time is up
   * @throws NcclException if the rank has to stop waiting; the meeting has failed then
   */
  synchronized void await(
      Participant participant, BooleanSupplier reached, Supplier<MissingRanks> late) {
    int rank = participant.rank();
    while (!reached.getAsBoolean()) {
      CommunicatorAbortedException abort = participant.aborted().get();
      if (abort != null) {
        giveUp("rank " + rank + " aborted while it was waiting in " + function, null);
        throw abort;
      }
      checkFailed(rank, participant.communicator());
      if (rejections.containsKey(rank)) {
        throw refused(rejections.get(rank));
      }
      if (participant.deadline().passed()) {
        throw timedOut(participant, late.get());
      }
      if (parent != null && assignments != null) {
        parent.ask();
      }
      try {
        wait(Math.min(participant.deadline().remainingMillis(), LOOK_MILLIS));
      } catch (InterruptedException e) {
        if (!reached.getAsBoolean()) {
          giveUp("rank " + rank + " was interrupted while it was waiting in " + function, null);
          throw Interrupts.cancelled(function);
        }
        Thread.currentThread().interrupt();
      }
    }
  }

  private NcclException timedOut(Participant participant, MissingRanks late) {
    Duration timeout = participant.deadline().timeout();
    BitSet waitedFor = late.ranks == null ? coordinatorRanks() : late.ranks;
    giveUp(
        "rank "
            + participant.rank()
            + " gave up after "
            + timeout.toMillis() / 1000.0
            + " s: "
            + late.text,
        waitedFor.isEmpty() ? null : waitedFor);
    return new NcclTimeoutException(function, timeout, late.text)
        .initDetails(FailureDetails.of(participant.communicator(), departedRanks(), waitedFor));
  }

  private MissingRanks shortfall(Participant participant) {
    if (coordinator != null && !answered) {
      return new MissingRanks(coordinator + " did not answer", null);
    }
    if (assignments == null) {
      return new MissingRanks(absence(), (BitSet) awaited.clone());
    }
    if (parent != null) {
      // Those that wait for a process that does not answer have not connected either.
      long timeout = participant.deadline().timeout().toNanos();
      BitSet silent = parent.silent(awaited.get(0, parent.size()), timeout);
      if (!silent.isEmpty()) {
        return new MissingRanks(parent.describe(silent) + " did not answer", silent);
      }
    }
    return new MissingRanks(
        RankSets.describe(awaited) + " did not connect", (BitSet) awaited.clone());
  }

  /** Returns the ranks of the process that convenes; none where ranks come by an id. */
  private BitSet coordinatorRanks() {
    BitSet ranks = new BitSet();
    if (parent != null) {
      RankMap rankMap = parent.rankMap();
      ranks.or(rankMap.ranksOf(rankMap.processOf(expected.nextSetBit(0))));
      ranks.and(expected);
    }
    return ranks;
  }

  /** Returns those who were expected and have left the parent. */
  private BitSet departedRanks() {
    BitSet left = new BitSet();
    if (parent != null) {
      expected.stream()
          .filter(rank -> rank < parent.size() && parent.presence(rank).left())
          .forEach(left::set);
    }
    return left;
  }

  private String absence() {
    return parent == null
        ? RankSets.describe(awaited)
            + " of "
            + expected.cardinality()
            + " did not come"
            + lateRejection
        : RankSets.describe(awaited) + " did not call " + function;
  }

  /** Tells whoever waits in vain of somebody who came and was not let in. */
  synchronized void noteRejection(String text) {
    lateRejection = "; refused: " + text;
  }

  /** Ends the meeting for all for a reason of one rank, also where another process convenes. */
  public synchronized void giveUp(String text, BitSet whoIsMissing) {
    if (coordinator != null && !over()) {
      coordinator.giveUp(expected.cardinality(), text, whoIsMissing);
    }
    fail(text, whoIsMissing);
  }

  /** Ends the meeting for all, unless it is over. */
  public synchronized void fail(String text, BitSet whoIsMissing) {
    if (over()) {
      return;
    }
    failure = text;
    missing = whoIsMissing;
    onComplete.onComplete(false);
    notifyListeners(false);
  }

  /** Ends the meeting if a rank has left that is needed. */
  synchronized void checkPresent() {
    if (over()) {
      return;
    }
    if (coordinator != null) {
      String departure = coordinator.departure();
      if (departure != null) {
        fail(departure, null);
      }
    } else if (parent != null) {
      for (int rank = expected.nextSetBit(0);
          rank >= 0 && rank < parent.size();
          rank = expected.nextSetBit(rank + 1)) {
        // No rank leaves before the meeting is done, unless it fails or is aborted.
        if (parent.presence(rank).left()) {
          fail(parent.departure(rank), null);
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
            ? new NcclRemoteException(function, NcclResult.REMOTE_ERROR.code(), failure, "")
            : new NcclTimeoutException(function, NcclResult.TIMEOUT.code(), failure, "");
    BitSet waitedFor = (BitSet) expected.clone();
    waitedFor.and(missing == null ? new BitSet() : missing);
    throw seen.initDetails(FailureDetails.of(name, departedRanks(), waitedFor));
  }

  private Map<Integer, RankAssignment> assignRanks() {
    Map<Integer, RankAssignment> result = new HashMap<>();
    List<MembershipRequest> ordered = new ArrayList<>(requests);
    ordered.sort(
        Comparator.comparingInt(MembershipRequest::key).thenComparingInt(MembershipRequest::rank));
    ordered.stream()
        .mapToInt(MembershipRequest::color)
        .filter(color -> color != NO_COLOR)
        .distinct()
        .forEach(color -> assignColor(ordered, color, result));
    return result;
  }

  private void assignColor(
      List<MembershipRequest> ordered, int color, Map<Integer, RankAssignment> result) {
    List<MembershipRequest> together =
        ordered.stream().filter(wish -> wish.color == color).toList();
    RankMap rankMap =
        RankMap.of(secret, together.stream().map(MembershipRequest::process).toList());
    for (int rank = 0; rank < together.size(); rank++) {
      result.put(together.get(rank).rank, new RankAssignment(rankMap, rank));
    }
  }

  /** Returns the ranks that are placed in one process of a plan, by their numbers in here. */
  synchronized BitSet ranksIn(RankMap plan, int process) {
    BitSet ranks = new BitSet();
    assignments.forEach(
        (rank, seat) -> {
          if (seat.rankMap == plan && plan.processOf(seat.rank) == process) {
            ranks.set(rank);
          }
        });
    return ranks;
  }

  /** Writes how the meeting stands. */
  private synchronized void write(DataOutput out, boolean withSeats) throws IOException {
    Message.writeText(out, failure);
    Message.writeBits(out, failure == null ? awaited : missing);
    out.writeBoolean(done);
    out.writeBoolean(withSeats && assignments != null);
    if (withSeats && assignments != null) {
      writeAssignments(out);
    }
  }

  private void writeAssignments(DataOutput out) throws IOException {
    List<RankMap> rankMaps =
        assignments.values().stream().map(RankAssignment::rankMap).distinct().toList();
    out.writeInt(rankMaps.size());
    for (RankMap rankMap : rankMaps) {
      rankMap.write(out);
    }
    out.writeInt(assignments.size());
    for (Map.Entry<Integer, RankAssignment> assignment : assignments.entrySet()) {
      out.writeInt(assignment.getKey());
      out.writeInt(rankMaps.indexOf(assignment.getValue().rankMap));
      out.writeInt(assignment.getValue().rank);
    }
  }

  /** Hears from the process that convenes how the meeting stands. */
  public void applyState(DataInput in) throws IOException {
    String toldFailure = Message.readText(in);
    BitSet bits = Message.readBits(in);
    boolean toldDone = in.readBoolean();
    Map<Integer, RankAssignment> receivedAssignments =
        in.readBoolean() ? readAssignments(in) : null;
    if (receivedAssignments != null && !function.equals(BootstrapKey.SPLIT)) {
      // Only a split may leave out ranks, those without a color.
      BitSet without = (BitSet) expected.clone();
      receivedAssignments.keySet().stream().filter(rank -> rank >= 0).forEach(without::clear);
      if (!without.isEmpty()) {
        throw new ProtocolException("it has no seat for " + RankSets.describe(without));
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
      awaited.clear();
      if (bits != null) {
        awaited.or(bits);
      }
      if (receivedAssignments != null) {
        assignments = receivedAssignments;
      }
      if (toldDone) {
        if (assignments == null) {
          throw new ProtocolException("a " + function + " is done in which no rank has a seat");
        }
        finish();
      }
      notifyListeners(receivedAssignments != null);
    }
  }

  private static Map<Integer, RankAssignment> readAssignments(DataInput in) throws IOException {
    List<RankMap> rankMaps = new ArrayList<>();
    for (int left = Message.count(in); left > 0; left--) {
      rankMaps.add(RankMap.read(in));
    }
    Map<Integer, RankAssignment> assignments = new HashMap<>();
    for (int left = Message.count(in); left > 0; left--) {
      int rank = in.readInt();
      int plan = in.readInt();
      int number = in.readInt();
      if (plan < 0
          || plan >= rankMaps.size()
          || number < 0
          || number >= rankMaps.get(plan).size()) {
        throw new ProtocolException("rank " + rank + " has a seat in no plan");
      }
      assignments.put(rank, new RankAssignment(rankMaps.get(plan), number));
    }
    return assignments;
  }

  /** Hears that a rank cannot take part. */
  public synchronized void applyRejection(int rank, String text) {
    answered = true;
    sent.remove(rank);
    rejections.put(rank, text);
    notifyAll();
    listeners.forEach(audience -> audience.onRejected(rank, text));
  }
}
