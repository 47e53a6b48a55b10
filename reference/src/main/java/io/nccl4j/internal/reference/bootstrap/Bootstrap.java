package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.NcclException;
import io.nccl4j.NcclResult;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.internal.reference.transport.Presence;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.RankSets;
import io.nccl4j.spi.Contract;
import io.nccl4j.spi.FailureDetails;
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
import java.util.concurrent.CancellationException;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;

/**
 * Forms new communicators from a set of ranks, for connect, split, shrink and grow. Each rank is
 * assigned a rank in the new communicator of its color.
 *
 * <p>One process coordinates the bootstrap: it records which ranks have arrived, and decides. Ranks
 * of other processes send their requests to it through a {@link Coordinator}, and receive the state
 * of the bootstrap.
 *
 * <p>A bootstrap is done once every rank has connected with the other ranks of its new
 * communicator. If a rank fails or leaves before that, the bootstrap fails for all ranks, so that
 * they all call again in the same communicator. There are two exceptions. The coordinating process
 * may die while it announces that the bootstrap is done: ranks that have not received the
 * announcement fail, and the others have a new communicator without the ranks of that process. And
 * a rank may time out, be interrupted or be aborted just before it receives the announcement: the
 * others then have a new communicator without that rank.
 */
public final class Bootstrap {
  /** The color of a rank that joins no new communicator. */
  public static final int NO_COLOR = -1;

  /** How often a waiting rank checks whether it was aborted, and asks the coordinating process. */
  private static final long POLL_MILLIS = 100;

  private static final long POLL_NANOS = TimeUnit.MILLISECONDS.toNanos(POLL_MILLIS);

  /** The least time without an answer after which a process counts as silent. */
  private static final long MIN_SILENCE_NANOS = 300_000_000;

  /**
   * How long a process that has joined by an id may go without a query before it counts as silent:
   * ten times their interval, whatever its timeout, which the coordinating process does not know.
   */
  static final long MAX_QUERY_PAUSE_NANOS = TimeUnit.SECONDS.toNanos(1);

  /**
   * The ranks that a bootstrap still waits for when a rank times out.
   *
   * @param text the description, for messages
   * @param ranks the missing ranks; null if they are unknown
   */
  public record MissingRanks(String text, BitSet ranks) {}

  /**
   * A rank's request to join a new communicator.
   *
   * @param process the process that hosts the rank
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
   * The result of a bootstrap for one rank.
   *
   * @param rank its rank in the new communicator
   */
  public record RankAssignment(RankMap rankMap, int rank) {}

  /** The coordinating process of a bootstrap, as another process uses it. */
  public interface Coordinator {
    /**
     * Reports that a rank has arrived.
     *
     * @param expected the number of expected ranks
     */
    void arrive(int expected, MembershipRequest request);

    /** Reports that a rank has connected with the other ranks of its new communicator. */
    void confirm(int expected, int rank);

    /** Reports that a rank has stopped waiting, and why. */
    void giveUp(int expected, BootstrapFailure why);

    /** Asks for the state of the bootstrap. */
    void query(int expected);

    /** Returns how the coordinating process has left; null while it is present. */
    String departure();
  }

  /** Another process that is notified of the state of a bootstrap. */
  public interface StateListener {
    void onState(int expected, Message.Body state);

    void onRejected(int rank, String text);

    /**
     * Adds the ranks that have joined by an id from this process, if it has stopped asking for the
     * state.
     */
    void addSilent(BitSet ranks);
  }

  /** The communicator that the ranks of a bootstrap belong to. */
  public interface Parent {
    /** Returns the number of ranks. */
    int size();

    RankMap rankMap();

    Presence presence(int rank);

    /** Describes how a rank has left. */
    String departure(int rank);

    /** Asks the other processes for the progress of their ranks, unless it did so just before. */
    void requestStatus();

    /**
     * Returns those of the given ranks whose processes do not answer.
     *
     * @param timeoutNanos the timeout of the waiting operation; a fraction of it counts as silence
     */
    BitSet silent(BitSet ranks, long timeoutNanos);

    /** Describes ranks, with the processes of those that other processes host. */
    String describe(BitSet ranks);

    /**
     * Returns why a shrink of a rank here cannot succeed: another rank excludes other ranks. Null
     * if none is known to.
     */
    BootstrapFailure disagreement(BitSet excluded);

    /** Returns the coordinator in another process; null for this process. */
    Coordinator coordinator(int process, BootstrapKey key);

    /** Returns the listener that notifies another process; null for this process. */
    StateListener stateListener(int process, BootstrapKey key);
  }

  /** Called when a bootstrap is done or has failed. */
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
  // Not a BitSet, whose size would follow the largest rank that another process names.
  private final Set<Integer> sent = new HashSet<>();
  // The ranks that have not arrived or, after the assignment, that have not connected.
  private final BitSet awaited;
  // After the assignment, the ranks that joined by an id and whose processes are silent.
  private final BitSet silent = new BitSet();
  private long silentFoundAt = System.nanoTime() - POLL_NANOS;
  private Coordinator coordinator;
  private boolean answered;
  // When the coordinating process was asked last, and whether its answer is pending.
  private long queriedAt = System.nanoTime() - POLL_NANOS;
  private boolean queried;
  private Map<Integer, RankAssignment> assignments;
  private boolean done;
  private BootstrapFailure failure;
  private String lateRejection = "";

  /**
   * Creates a bootstrap.
   *
   * @param secret the secret of the new communicators
   * @param expected the ranks that join: ranks of the parent, and new ranks above those
   * @param parent the communicator that the ranks belong to, or null
   * @param onComplete runs once all ranks have connected, or one has failed
   */
  public Bootstrap(
      String function,
      Secret secret,
      BitSet expected,
      Parent parent,
      CompletionListener onComplete) {
    this.function = function;
    this.secret = secret;
    this.parent = parent;
    this.expected = expected;
    this.onComplete = onComplete;
    this.awaited = (BitSet) expected.clone();
  }

  public String function() {
    return function;
  }

  /**
   * Returns how long a process may take to answer before it counts as silent: part of a timeout, as
   * it may be busy.
   */
  public static long silenceNanos(long timeoutNanos) {
    return Math.max(MIN_SILENCE_NANOS, timeoutNanos / 4);
  }

  /** Returns the ranks that have not arrived or, after the assignment, connected; for tests. */
  public synchronized BitSet awaited() {
    return (BitSet) awaited.clone();
  }

  /** Sets the coordinator, for a bootstrap that another process coordinates. */
  void setCoordinator(Coordinator coordinator) {
    this.coordinator = coordinator;
  }

  /** Adds a listener for changes of the state; reports an earlier assignment or failure at once. */
  synchronized void addListener(StateListener listener) {
    listeners.add(listener);
    if (assignments != null || failure != null) {
      listener.onState(expected.cardinality(), out -> write(out, true));
    }
  }

  /** Returns whether all expected ranks have arrived. */
  synchronized boolean isAssigned() {
    return assignments != null;
  }

  private boolean isOver() {
    return done || failure != null;
  }

  /** Throws if the bootstrap is over, so that no rank can arrive any more. */
  synchronized void checkNotOver(int rank) {
    checkFailed(rank, "");
    if (done) {
      throw alreadyJoined(rank);
    }
  }

  private NcclException alreadyJoined(int rank) {
    return refused("rank " + rank + " has already joined; each rank joins once");
  }

  /**
   * Adds a rank. Does not wait for the coordinating process.
   *
   * @throws NcclException if the rank cannot take part
   */
  public void arrive(MembershipRequest request) {
    if (coordinator != null) {
      recordSent(request.rank());
      coordinator.arrive(expected.cardinality(), request);
      // The coordinator may have left before this bootstrap was created.
      checkPresent();
      return;
    }
    synchronized (this) {
      checkFailed(request.rank(), "");
      if (assignments != null || !awaited.get(request.rank())) {
        throw expected.get(request.rank())
            ? alreadyJoined(request.rank())
            : refused("rank " + request.rank() + " is not expected");
      }
      requests.add(request);
      awaited.clear(request.rank());
      boolean complete = awaited.isEmpty();
      if (complete) {
        assignments = assignRanks();
        if (assignments.values().stream().anyMatch(a -> a.rankMap.processes().size() > 1)) {
          awaited.or(expected);
        } else {
          finish();
        }
      }
      notifyListeners(complete);
    }
    checkPresent();
  }

  /** Records a rank that joins at another process: answers are matched by rank alone. */
  private synchronized void recordSent(int rank) {
    if (!sent.add(rank)) {
      throw alreadyJoined(rank);
    }
  }

  /** Records that a rank has connected with the other ranks of its new communicator. */
  public synchronized void confirm(int rank) {
    if (assignments == null || isOver()) {
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

  private NcclException refused(String text) {
    return Contract.get().failure(function, NcclResult.INVALID_USAGE.code(), text, "");
  }

  private void notifyListeners(boolean withAssignments) {
    notifyAll();
    for (StateListener listener : listeners) {
      listener.onState(expected.cardinality(), out -> write(out, withAssignments));
    }
  }

  /** Makes waiting ranks check their condition again, and whether they were aborted. */
  public synchronized void wake() {
    notifyAll();
  }

  /** Waits until all ranks have arrived; returns the rank's assignment, or null without a color. */
  public synchronized RankAssignment awaitAssignment(Participant participant) {
    awaitOthers(participant, () -> assignments != null, this::missingRanks);
    return assignments.get(participant.rank());
  }

  /** Waits until all ranks have connected. */
  public synchronized void awaitDone(Participant participant) {
    awaitOthers(participant, () -> done, this::missingRanks);
  }

  /**
   * Waits for other ranks. If the wait times out, it names those that do not answer, if there are
   * any, since the others may only be waiting for them.
   *
   * @param missing returns what is missing if every process answers
   */
  void awaitOthers(
      Participant participant, BooleanSupplier reached, Supplier<MissingRanks> missing) {
    await(participant, reached, () -> missingAfterTimeout(participant, missing));
  }

  /**
   * Waits until a condition holds. It is checked after each {@link #wake}.
   *
   * @param late returns what is missing when the wait times out
   * @throws NcclException if the rank has to stop waiting; the bootstrap has failed then
   */
  public synchronized void await(
      Participant participant, BooleanSupplier reached, Supplier<MissingRanks> late) {
    int rank = participant.rank();
    boolean lastLook = false;
    while (!reached.getAsBoolean()) {
      CommunicatorAbortedException abort = participant.aborted().get();
      if (abort != null) {
        giveUp(
            BootstrapFailure.of(
                "rank " + rank + " aborted while it was waiting in " + function, rank));
        throw abort;
      }
      checkFailed(rank, participant.communicator());
      if (rejections.containsKey(rank)) {
        throw refused(rejections.get(rank));
      }
      if (participant.deadline().passed()) {
        if (lastLook) {
          throw timedOut(participant, late.get());
        }
        // This process may have been paused, and has to read what others have sent meanwhile.
        lastLook = true;
      }
      // So that a time-out names those that are silent, not those that wait for them.
      if (parent != null) {
        parent.requestStatus();
      }
      query();
      try {
        wait(
            lastLook
                ? POLL_MILLIS
                : Math.min(participant.deadline().remainingMillis(), POLL_MILLIS));
      } catch (InterruptedException e) {
        if (!reached.getAsBoolean()) {
          throw interrupted(rank);
        }
        Thread.currentThread().interrupt();
      }
    }
  }

  private void query() {
    long now = System.nanoTime();
    if (coordinator != null && !queried && now - queriedAt >= POLL_NANOS) {
      queriedAt = now;
      queried = true;
      coordinator.query(expected.cardinality());
    }
  }

  /**
   * Sends the current state to another process, which has asked for it; it has the assignments.
   * Once the bootstrap is over that process has been notified, and may have removed its own.
   */
  public synchronized void report(StateListener listener) {
    if (!isOver()) {
      listener.onState(expected.cardinality(), out -> write(out, false));
    }
  }

  /** Gives up for a rank whose thread was interrupted; returns the exception to throw. */
  public CancellationException interrupted(int rank) {
    giveUp(
        BootstrapFailure.of(
            "rank " + rank + " was interrupted while it was waiting in " + function, rank));
    return Interrupts.cancelled(function);
  }

  private NcclException timedOut(Participant participant, MissingRanks late) {
    Duration timeout = participant.deadline().timeout();
    BitSet waitedFor = late.ranks == null ? coordinatorRanks() : late.ranks;
    String text =
        "rank %d gave up after %s s: %s"
            .formatted(participant.rank(), timeout.toMillis() / 1000.0, late.text);
    giveUp(new BootstrapFailure(text, departedRanks(), waitedFor, false));
    return Contract.get()
        .initDetails(
            new NcclTimeoutException(function, timeout, late.text),
            FailureDetails.of(participant.communicator(), departedRanks(), waitedFor));
  }

  private MissingRanks missingAfterTimeout(
      Participant participant, Supplier<MissingRanks> missing) {
    long timeout = participant.deadline().timeout().toNanos();
    boolean silentCoordinator = queried && System.nanoTime() - queriedAt > silenceNanos(timeout);
    if (coordinator != null && (!answered || silentCoordinator)) {
      return new MissingRanks(coordinator + " did not answer", null);
    }
    // Ranks that wait for a silent process have not arrived or connected either. Its own ranks may
    // have: a rank has connected once its connections are open, before they are used.
    if (parent != null) {
      BitSet asked = assignments == null ? awaited : expected;
      BitSet unanswering = parent.silent(asked.get(0, parent.size()), timeout);
      if (!unanswering.isEmpty()) {
        return new MissingRanks(parent.describe(unanswering) + " did not answer", unanswering);
      }
    }
    findSilent();
    if (!silent.isEmpty()) {
      return new MissingRanks(
          RankSets.describe(silent) + " did not connect", (BitSet) silent.clone());
    }
    return missing.get();
  }

  private MissingRanks missingRanks() {
    return new MissingRanks(missingText(), (BitSet) awaited.clone());
  }

  /** Finds the silent ranks that have joined at this process. */
  private void findSilent() {
    if (coordinator == null && assignments != null) {
      silentFoundAt = System.nanoTime();
      silent.clear();
      listeners.forEach(listener -> listener.addSilent(silent));
    }
  }

  /** Returns the ranks of the coordinating process; none where ranks join by an id. */
  private BitSet coordinatorRanks() {
    BitSet ranks = new BitSet();
    if (parent != null) {
      RankMap rankMap = parent.rankMap();
      ranks.or(rankMap.ranksOf(rankMap.processOf(expected.nextSetBit(0))));
      ranks.and(expected);
    }
    return ranks;
  }

  /** Returns the expected ranks that have left the parent. */
  private BitSet departedRanks() {
    BitSet left = new BitSet();
    if (parent != null) {
      expected.stream()
          .filter(rank -> rank < parent.size() && parent.presence(rank).left())
          .forEach(left::set);
    }
    return left;
  }

  private String missingText() {
    if (assignments != null) {
      return RankSets.describe(awaited) + " did not connect";
    }
    return parent == null
        ? RankSets.describe(awaited)
            + " of "
            + expected.cardinality()
            + " did not join"
            + lateRejection
        : RankSets.describe(awaited) + " did not call " + function;
  }

  /** Adds a rejected rank to the messages of ranks that time out. */
  synchronized void recordRejection(String text) {
    lateRejection = "; refused: " + text;
  }

  /** Fails the bootstrap for all ranks, also at the coordinating process. */
  public synchronized void giveUp(BootstrapFailure why) {
    if (coordinator != null && !isOver()) {
      coordinator.giveUp(expected.cardinality(), why);
    }
    fail(why);
  }

  /** Fails the bootstrap in this process and its listeners, unless it is over. */
  public synchronized void fail(BootstrapFailure why) {
    if (isOver()) {
      return;
    }
    failure = why;
    onComplete.onComplete(false);
    notifyListeners(false);
  }

  /** Fails the bootstrap if an expected rank has left. */
  synchronized void checkPresent() {
    if (isOver()) {
      return;
    }
    if (coordinator != null) {
      String departure = coordinator.departure();
      if (departure != null) {
        BitSet left = coordinatorRanks();
        left.and(departedRanks());
        fail(BootstrapFailure.of(departure, left));
      }
    } else if (parent != null) {
      for (int rank = expected.nextSetBit(0);
          rank >= 0 && rank < parent.size();
          rank = expected.nextSetBit(rank + 1)) {
        // No rank leaves before the bootstrap is done, unless it fails or is aborted.
        if (parent.presence(rank).left()) {
          fail(BootstrapFailure.of(parent.departure(rank), departedRanks()));
          return;
        }
      }
    }
  }

  private void checkFailed(int rank, String name) {
    if (failure == null) {
      return;
    }
    throw Contract.get()
        .initDetails(
            failure.seenBy(rank, function),
            FailureDetails.of(name, existing(failure.failed()), existing(failure.missing())));
  }

  /** Returns the ranks that exist; another process may have named others. */
  private BitSet existing(BitSet ranks) {
    return ranks.get(0, Math.max(expected.length(), parent == null ? 0 : parent.size()));
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
    List<MembershipRequest> members =
        ordered.stream().filter(request -> request.color == color).toList();
    RankMap rankMap = RankMap.of(secret, members.stream().map(MembershipRequest::process).toList());
    for (int rank = 0; rank < members.size(); rank++) {
      result.put(members.get(rank).rank, new RankAssignment(rankMap, rank));
    }
  }

  /** Returns the ranks of one process of a rank map, numbered as in this bootstrap. */
  synchronized BitSet ranksIn(RankMap rankMap, int process) {
    BitSet ranks = new BitSet();
    assignments.forEach(
        (rank, assignment) -> {
          if (assignment.rankMap == rankMap && rankMap.processOf(assignment.rank) == process) {
            ranks.set(rank);
          }
        });
    return ranks;
  }

  /** Writes the state. */
  private synchronized void write(DataOutput out, boolean withAssignments) throws IOException {
    out.writeBoolean(failure != null);
    if (failure != null) {
      failure.write(out);
    }
    Message.writeBits(out, awaited);
    // Not more often than a process asks, since each answer looks at all processes.
    if (System.nanoTime() - silentFoundAt >= POLL_NANOS) {
      findSilent();
    }
    Message.writeBits(out, silent);
    out.writeBoolean(done);
    out.writeBoolean(withAssignments && assignments != null);
    if (withAssignments && assignments != null) {
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

  /** Applies the state that the coordinating process has sent. */
  public void applyState(DataInput in) throws IOException {
    BootstrapFailure receivedFailure = in.readBoolean() ? BootstrapFailure.read(in) : null;
    BitSet receivedAwaited = Message.readBits(in);
    BitSet receivedSilent = Message.readBits(in);
    boolean receivedDone = in.readBoolean();
    Map<Integer, RankAssignment> receivedAssignments =
        in.readBoolean() ? readAssignments(in) : null;
    if (receivedAssignments != null && !function.equals(BootstrapKey.SPLIT)) {
      // Only a split may leave out ranks: those without a color.
      BitSet without = (BitSet) expected.clone();
      receivedAssignments.keySet().stream().filter(rank -> rank >= 0).forEach(without::clear);
      if (!without.isEmpty()) {
        throw new ProtocolException("it has no assignment for " + RankSets.describe(without));
      }
    }
    synchronized (this) {
      answered = true;
      queried = false;
      if (isOver()) {
        return;
      }
      if (receivedFailure != null) {
        fail(receivedFailure);
        return;
      }
      awaited.clear();
      awaited.or(receivedAwaited);
      silent.clear();
      silent.or(receivedSilent);
      silent.and(expected);
      if (receivedAssignments != null) {
        assignments = receivedAssignments;
      }
      if (receivedDone) {
        if (assignments == null) {
          throw new ProtocolException("a " + function + " is done but has no assignments");
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
      int index = in.readInt();
      int newRank = in.readInt();
      if (index < 0
          || index >= rankMaps.size()
          || newRank < 0
          || newRank >= rankMaps.get(index).size()) {
        throw new ProtocolException("rank " + rank + " is assigned to no rank map");
      }
      assignments.put(rank, new RankAssignment(rankMaps.get(index), newRank));
    }
    return assignments;
  }

  /** Records that the coordinating process has rejected a rank. */
  public synchronized void applyRejection(int rank, String text) {
    answered = true;
    sent.remove(rank);
    rejections.put(rank, text);
    notifyAll();
    listeners.forEach(listener -> listener.onRejected(rank, text));
  }
}
