package io.nccl4j.internal.reference.rank;

import io.nccl4j.NcclException;
import io.nccl4j.internal.reference.bootstrap.Bootstrap;
import io.nccl4j.internal.reference.bootstrap.BootstrapFailure;
import io.nccl4j.internal.reference.bootstrap.BootstrapKey;
import io.nccl4j.internal.reference.bootstrap.Bootstraps;
import io.nccl4j.internal.reference.bootstrap.CommunicatorEndpoint;
import io.nccl4j.internal.reference.bootstrap.Connection;
import io.nccl4j.internal.reference.bootstrap.Handshake;
import io.nccl4j.internal.reference.bootstrap.Message;
import io.nccl4j.internal.reference.bootstrap.Participant;
import io.nccl4j.internal.reference.bootstrap.ProcessAddress;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.reference.bootstrap.RankMap;
import io.nccl4j.internal.reference.bootstrap.Secret;
import io.nccl4j.internal.reference.collective.DirectSync;
import io.nccl4j.internal.reference.transport.LinkContext;
import io.nccl4j.internal.reference.transport.LinkKey;
import io.nccl4j.internal.reference.transport.LinkTable;
import io.nccl4j.internal.reference.transport.Presence;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.RankSets;
import java.io.DataInput;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.ProtocolException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;

/**
 * This process's part of a communicator: its ranks, the state of the ranks of other processes, and
 * the resources that they share.
 */
public final class CommunicatorState
    implements LinkContext, Bootstrap.Parent, CommunicatorEndpoint {
  /** The least time between two requests for the progress of remote ranks. */
  private static final long STATUS_INTERVAL_NANOS = TimeUnit.MILLISECONDS.toNanos(50);

  /** How long a remote rank may take to report what it has called; also when this one closes. */
  private static final long EXPLANATION_NANOS = TimeUnit.SECONDS.toNanos(2);

  /** A process that was paused itself may need this long to read the answers to its requests. */
  private static final Duration OWN_PAUSE = Duration.ofMillis(100);

  private final ProcessEndpoint endpoint;
  private final RankMap rankMap;
  private final RankOptions options;
  private final List<RankState> rankStates = new ArrayList<>();
  // Null for ranks of other processes.
  private final HostedRank[] hostedRanks;
  // Ranks of this process that have not announced that they leave; guarded by itself.
  private final BitSet notLeaving = new BitSet();
  // Null for this process.
  private final RemoteProcess[] remoteProcesses;
  private final List<RemoteProcess> otherProcesses = new ArrayList<>();
  private final LinkTable links;
  private final Bootstraps bootstraps;
  // Held while the state of a shrink of a rank of this process changes.
  private final Object shrinks = new Object();
  private final AtomicReference<RankFailure> failure = new AtomicReference<>();
  private final DirectSync directSync;
  // Whether a waiting rank has to check for failures; cheap to read.
  private volatile boolean failureSignalled;
  private volatile long statusRequestedAt;
  private boolean registered;
  // The bootstrap of the ranks here, while they wait for other processes.
  private volatile Bootstrap connecting;

  public CommunicatorState(ProcessEndpoint endpoint, RankMap rankMap, RankOptions options) {
    this.endpoint = endpoint;
    this.rankMap = rankMap;
    this.options = options;
    this.directSync = new DirectSync(rankMap.size());
    this.links = new LinkTable(this);
    this.bootstraps = new Bootstraps(endpoint, this, options.text());
    this.hostedRanks = new HostedRank[rankMap.size()];
    this.remoteProcesses = new RemoteProcess[rankMap.processes().size()];
    for (int rank = 0; rank < rankMap.size(); rank++) {
      RankState rankState = new RankState(rank);
      rankStates.add(rankState);
    }
    for (int process = 0; process < remoteProcesses.length; process++) {
      if (!rankMap.processes().get(process).process().equals(endpoint.process())) {
        remoteProcesses[process] = new RemoteProcess(this, process);
        otherProcesses.add(remoteProcesses[process]);
      }
    }
    for (int rank = 0; rank < rankMap.size(); rank++) {
      if (remoteProcess(rank) == null) {
        hostedRanks[rank] = new HostedRank(this, rank, rankMap.size());
        notLeaving.set(rank);
      }
    }
  }

  /**
   * Takes part in a bootstrap until all ranks have connected; returns the rank of the new
   * communicator, or null for a rank without a color.
   *
   * @throws NcclException if this rank is refused, or the bootstrap has failed for all ranks
   */
  public static HostedRank join(
      Participant participant, ProcessEndpoint endpoint, RankOptions options) {
    Bootstrap bootstrap = participant.bootstrap();
    Bootstrap.RankAssignment assignment = bootstrap.awaitAssignment(participant);
    CommunicatorState communicator = null;
    try {
      if (assignment != null) {
        communicator = form(assignment.rankMap(), endpoint, options, participant);
      }
      bootstrap.confirm(participant.rank());
      bootstrap.awaitDone(participant);
      return communicator == null ? null : communicator.hostedRank(assignment.rank());
    } catch (RuntimeException | Error e) {
      String why = e instanceof NcclException failure ? failure.text() : e.toString();
      bootstrap.giveUp(failedToConnect(participant.rank(), why, e));
      if (communicator != null) {
        communicator.abandon("rank " + assignment.rank() + " gave up connecting: " + why);
      }
      throw e;
    }
  }

  /** Names the ranks because of which a rank failed to connect, or else that rank. */
  private static BootstrapFailure failedToConnect(int rank, String why, Throwable cause) {
    String text = "rank " + rank + " failed to connect: " + why;
    if (cause instanceof NcclException known) {
      BitSet failed = RankSets.of(known.failedRanks());
      BitSet missing = RankSets.of(known.missingRanks());
      if (!failed.isEmpty() || !missing.isEmpty()) {
        return new BootstrapFailure(text, failed, missing, false);
      }
    }
    return BootstrapFailure.of(text, rank);
  }

  /** Returns this process's part of a new communicator; its first rank creates and connects it. */
  public static CommunicatorState form(
      RankMap rankMap, ProcessEndpoint endpoint, RankOptions options, Participant participant) {
    return rankMap.form(
        CommunicatorState.class,
        participant,
        () -> {
          CommunicatorState made = new CommunicatorState(endpoint, rankMap, options);
          made.connect(participant);
          return made;
        });
  }

  @Override
  public long id() {
    return rankMap.communicator();
  }

  @Override
  public Secret secret() {
    return rankMap.secret();
  }

  ProcessEndpoint endpoint() {
    return endpoint;
  }

  @Override
  public RankMap rankMap() {
    return rankMap;
  }

  @Override
  public int size() {
    return hostedRanks.length;
  }

  /** Returns whether all ranks are of this process. */
  public boolean inOneProcess() {
    return remoteProcesses.length == 1;
  }

  /** Returns a rank of this process. */
  public HostedRank hostedRank(int rank) {
    return hostedRanks[rank];
  }

  /** Returns the state of a rank of any process. */
  public RankState rankState(int rank) {
    return rankStates.get(rank);
  }

  /** Returns the process of a rank, or null if it is this one. */
  public RemoteProcess remoteProcess(int rank) {
    return remoteProcesses[rankMap.processOf(rank)];
  }

  public RankOptions options() {
    return options;
  }

  /** Returns the sync object for direct transfers within this process. */
  DirectSync directSync() {
    return directSync;
  }

  /** Returns the links of the ranks of this process. */
  public LinkTable links() {
    return links;
  }

  /** Returns the bootstraps of communicators that are derived from this one. */
  public Bootstraps bootstraps() {
    return bootstraps;
  }

  @Override
  public int sliceBytes() {
    return options.layout().sliceBytes();
  }

  @Override
  public boolean hosts(int rank) {
    return remoteProcess(rank) == null;
  }

  @Override
  public boolean sharesMemoryWith(int rank) {
    RemoteProcess process = remoteProcess(rank);
    return process != null
        && options.sharesMemory()
        && process.address().host().equals(endpoint.host());
  }

  @Override
  public Presence presence(int rank) {
    return rankStates.get(rank).presence();
  }

  @Override
  public String departure(int rank) {
    return rankStates.get(rank).departure();
  }

  @Override
  public void wake(int rank) {
    hostedRanks[rank].wake();
  }

  @Override
  public String describe(int rank) {
    return describe(RankSets.of(rank));
  }

  @Override
  public void fail(int rank, String text) {
    raise(RankFailure.protocolViolation(text, RankSets.of(rank)));
  }

  @Override
  public InetSocketAddress address(int rank) {
    return remoteProcess(rank).address().address();
  }

  @Override
  public int greetingBytes() {
    return Handshake.GREETING_BYTES;
  }

  @Override
  public ByteBuffer claim(LinkKey key, byte[] greeting) throws IOException {
    return remoteProcess(key.to())
        .opening(Message.Kind.LINK, key::write)
        .answer(greeting)
        .message();
  }

  @Override
  public void warn(String text) {
    RemoteProcess.warn(text);
  }

  @Override
  public void announceMemory(LinkKey key, Path path) {
    remoteProcess(key.to()).announceMemory(key, path);
  }

  @Override
  public void refuseMemory(LinkKey key, String why) {
    remoteProcess(key.from()).refuseMemory(key, why);
  }

  @Override
  public Bootstrap.Coordinator coordinator(int process, BootstrapKey key) {
    return remoteProcesses[process] == null ? null : remoteProcesses[process].coordinator(key);
  }

  @Override
  public Bootstrap.StateListener stateListener(int process, BootstrapKey key) {
    return remoteProcesses[process] == null ? null : remoteProcesses[process].stateListener(key);
  }

  /**
   * Connects this process with the others, and waits for them.
   *
   * @throws io.nccl4j.NcclException if one cannot be reached, or the participant has to stop
   */
  void connect(Participant participant) {
    if (inOneProcess()) {
      return;
    }
    endpoint.retain(rankMap.secret(), participant.bootstrap().function());
    synchronized (this) {
      registered = true;
    }
    connecting = participant.bootstrap();
    endpoint.register(this);
    int self = 0;
    while (remoteProcesses[self] != null) {
      self++;
    }
    boolean connected = false;
    try {
      for (int process = 0; process < self; process++) {
        remoteProcesses[process].connect(participant);
      }
      for (int process = self + 1; process < remoteProcesses.length; process++) {
        remoteProcesses[process].awaitConnected(participant);
      }
      connected = true;
    } finally {
      connecting = null;
      if (!connected) {
        end();
      }
    }
  }

  /** Wakes the rank that waits for other processes to connect. */
  void onRemoteConnected() {
    Bootstrap waiting = connecting;
    if (waiting != null) {
      waiting.wake();
    }
  }

  /** Ends this process's part of a communicator that has failed before all ranks connected. */
  void abandon(String why) {
    raise(RankFailure.protocolViolation(why, ranksHere()));
    end();
  }

  @Override
  public void admitControl(Connection connection, DataInput in) throws IOException {
    UUID id = ProcessAddress.readUuid(in);
    for (RemoteProcess process : otherProcesses) {
      if (process.address().process().equals(id)) {
        process.accept(connection);
        return;
      }
    }
    throw new ProtocolException("it is not a process of this communicator");
  }

  @Override
  public void admitLink(Connection connection, DataInput in) throws IOException {
    links.admit(LinkKey.read(in), connection::detach);
  }

  public RankFailure failure() {
    return failure.get();
  }

  /** Reports a failure to all ranks, unless there was one before. */
  void raise(RankFailure newFailure) {
    if (!failure.compareAndSet(null, newFailure)) {
      return;
    }
    signalFailure();
    otherProcesses.forEach(process -> process.announce(newFailure));
  }

  @Override
  public void failHere(String why) {
    BitSet here = ranksHere();
    int first = here.nextSetBit(0);
    raise(new RankFailure(first, RankFailure.Kind.RANK_FAILED, why, here, new BitSet(), null, 0));
  }

  private BitSet ranksHere() {
    BitSet here = new BitSet();
    for (int rank = 0; rank < hostedRanks.length; rank++) {
      here.set(rank, hostedRanks[rank] != null);
    }
    return here;
  }

  /** Records a failure that another process has reported. */
  public void receiveFailure(RankFailure received) {
    failure.compareAndSet(null, received);
    signalFailure();
  }

  private void signalFailure() {
    failureSignalled = true;
    for (HostedRank hostedRank : hostedRanks) {
      if (hostedRank != null) {
        hostedRank.wake();
      }
    }
  }

  public boolean failureSignalled() {
    return failureSignalled;
  }

  /** Notifies all ranks that a rank of this process was revoked, closed or aborted. */
  void announcePresence(RankState self) {
    boolean leaving = self.presence().left();
    otherProcesses.forEach(process -> process.announce(self));
    onPresenceChanged();
    if (leaving && lastToLeave(self)) {
      end();
    }
  }

  /**
   * Records that a rank of this process has announced that it leaves, and returns whether all of
   * them have. Their presence does not show that: two ranks may close at the same time.
   */
  private boolean lastToLeave(RankState self) {
    synchronized (notLeaving) {
      notLeaving.clear(self.rank());
      return notLeaving.isEmpty();
    }
  }

  /** Makes all waits of this process check which ranks have left. */
  void onPresenceChanged() {
    signalFailure();
    bootstraps.check();
  }

  /**
   * Notifies all ranks of a rank's aborting shrink, and waits until the processes of the excluded
   * ranks have received that, unless they do not answer: an excluded rank that shrinks too then
   * learns that it is excluded, whichever of the two was first. An excluded rank that answers was
   * probably excluded by mistake, and is given time to shrink too.
   */
  void beginShrink(RankState self, BitSet excluded, Participant participant) {
    setShrink(self, RankState.ShrinkPhase.PENDING, excluded);
    long timeout = participant.deadline().timeout().toNanos();
    Deadline grace = Deadline.after(Duration.ofNanos(Math.min(EXPLANATION_NANOS, timeout / 4)));
    Deadline own = Deadline.after(OWN_PAUSE);
    List<BooleanSupplier> acknowledged = new ArrayList<>();
    for (int rank = excluded.nextSetBit(0); rank >= 0; rank = excluded.nextSetBit(rank + 1)) {
      RankState other = rankState(rank);
      RemoteProcess process = remoteProcess(rank);
      long request = process == null ? 0 : process.requestAnswer();
      acknowledged.add(
          () ->
              other.presence().left()
                  || (process != null
                      && own.passed()
                      && process.silent(Bootstrap.silenceNanos(timeout)))
                  || (grace.passed() && (process == null || process.answered(request))));
    }
    participant
        .bootstrap()
        .await(
            participant,
            () -> acknowledged.stream().allMatch(BooleanSupplier::getAsBoolean),
            () -> new Bootstrap.MissingRanks(describe(excluded) + " did not answer", excluded));
  }

  /** Sets the state of the shrink of a rank of this process, and notifies all ranks of it. */
  void setShrink(RankState self, RankState.ShrinkPhase phase, BitSet excluded) {
    // If ranks exclude different ranks, all of them give up. The first to do so must not end its
    // shrink before the others have been compared with it.
    synchronized (shrinks) {
      self.setShrink(phase, excluded, left());
      // First, since a rank that learns of this shrink may give up its own, which is then unknown.
      bootstraps.check();
    }
    otherProcesses.forEach(process -> process.announce(self));
  }

  /** Returns the ranks that have left, and those whose processes do not answer now. */
  public BitSet lostRanks(Duration timeout) {
    BitSet lost = awaitReports(Bootstrap.silenceNanos(timeout.toNanos()));
    lost.or(left());
    return lost;
  }

  /** Waits for the states of the remote ranks as they are now or later. */
  void awaitReports() {
    awaitReports(EXPLANATION_NANOS);
  }

  /**
   * Waits for the states of the remote ranks as they are now or later; returns the ranks of
   * processes that do not answer.
   *
   * @param silenceNanos how long a process may take to answer this or an earlier request
   */
  private BitSet awaitReports(long silenceNanos) {
    List<Long> requests = otherProcesses.stream().map(RemoteProcess::requestAnswer).toList();
    Backoff backoff = Backoff.betweenQueries(Deadline.after(Duration.ofNanos(silenceNanos)));
    Deadline own = Deadline.after(OWN_PAUSE);
    BitSet silent = new BitSet();
    for (int i = 0; i < requests.size(); i++) {
      RemoteProcess process = otherProcesses.get(i);
      long request = requests.get(i);
      Interrupts.awaitUninterruptibly(
          () -> {
            while (!process.answered(request) && !(own.passed() && process.silent(silenceNanos))) {
              if (!backoff.pause()) {
                return;
              }
            }
          });
      if (!process.answered(request)) {
        silent.or(process.ranks());
      }
    }
    return silent;
  }

  /** Returns the number of the last known state of each rank's shrinks. */
  long[] shrinkNumbers() {
    return rankStates.stream().mapToLong(state -> state.shrink().number()).toArray();
  }

  @Override
  public BootstrapFailure disagreement(BitSet excluded) {
    for (HostedRank hostedRank : hostedRanks) {
      RankState own = hostedRank == null ? null : hostedRank.self();
      if (own != null && own.shrink().pending() && own.shrink().excluded().equals(excluded)) {
        for (RankState other : rankStates) {
          BootstrapFailure found = disagreement(own, other, hostedRank.knew(other));
          if (found != null) {
            return found;
          }
        }
      }
    }
    return null;
  }

  /** Returns the ranks that are known to have left. */
  private BitSet left() {
    BitSet left = new BitSet();
    rankStates.stream()
        .filter(each -> each.presence().left())
        .forEach(each -> left.set(each.rank()));
    return left;
  }

  /**
   * Returns why two ranks cannot both shrink, or null.
   *
   * @param ended whether the shrink of the other rank is one that has ended, which it may not have
   *     noticed yet
   */
  private BootstrapFailure disagreement(RankState own, RankState other, boolean ended) {
    BitSet mine = own.shrink().excluded();
    RankState.Shrink theirs = other.shrink();
    // Another process may have named ranks that do not exist.
    BitSet others = theirs.excluded().get(0, size());
    if (theirs.phase() == RankState.ShrinkPhase.DONE && others.get(own.rank())) {
      return new BootstrapFailure(
          "rank %d continues without %s; rank %d excludes %s"
              .formatted(
                  other.rank(), RankSets.describe(others), own.rank(), RankSets.describe(mine)),
          others,
          new BitSet(),
          true);
    }
    if (!theirs.pending()
        || ended
        || others.equals(mine)
        || expectsRankThatLeft(mine, theirs)
        || expectsRankThatLeft(others, theirs)) {
      return null;
    }
    // The other excluded ranks may call too: only those that have left are known to be lost.
    BitSet failed = (BitSet) mine.clone();
    failed.or(others);
    failed.and(left());
    return new BootstrapFailure(
        "ranks exclude different ranks: rank %d excludes %s, rank %d excludes %s"
            .formatted(
                own.rank(), RankSets.describe(mine), other.rank(), RankSets.describe(others)),
        failed,
        new BitSet(),
        true);
  }

  /**
   * Returns whether a shrink fails anyway, because a rank that it needs has left. The process of
   * another rank may have noticed that first.
   */
  private boolean expectsRankThatLeft(BitSet excluded, RankState.Shrink other) {
    BitSet expected = left();
    expected.or(other.left().get(0, size()));
    expected.andNot(excluded);
    return !expected.isEmpty();
  }

  /** Closes the connections with the other processes. */
  void end() {
    synchronized (this) {
      if (!registered) {
        return;
      }
      registered = false;
    }
    endpoint.unregister(this);
    otherProcesses.forEach(RemoteProcess::end);
    links.close();
    endpoint.release(rankMap.secret());
  }

  @Override
  public void requestStatus() {
    if (inOneProcess()) {
      return;
    }
    long now = System.nanoTime();
    if (statusRequestedAt == 0 || now - statusRequestedAt > STATUS_INTERVAL_NANOS) {
      statusRequestedAt = now;
      otherProcesses.forEach(RemoteProcess::requestStatus);
    }
  }

  /**
   * Returns whether a remote rank may still report what it has called, and asks its process.
   *
   * @param since when it was asked first, or 0
   */
  boolean mayExplain(int rank, long since) {
    if (remoteProcess(rank) == null
        || (since != 0 && System.nanoTime() - since > EXPLANATION_NANOS)) {
      return false;
    }
    requestStatus();
    return true;
  }

  @Override
  public BitSet silent(BitSet ranks, long timeoutNanos) {
    long nanos = Bootstrap.silenceNanos(timeoutNanos);
    BitSet silent = new BitSet();
    ranks.stream()
        .filter(rank -> remoteProcess(rank) != null && remoteProcess(rank).silent(nanos))
        .forEach(silent::set);
    return silent;
  }

  @Override
  public String describe(BitSet ranks) {
    List<String> processes =
        otherProcesses.stream()
            .filter(process -> process.ranks().intersects(ranks))
            .map(process -> process.address().toString())
            .toList();
    return RankSets.describe(ranks)
        + (processes.isEmpty() ? "" : " (" + String.join(", ", processes) + ")");
  }
}
