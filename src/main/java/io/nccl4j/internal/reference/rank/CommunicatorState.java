package io.nccl4j.internal.reference.rank;

import io.nccl4j.NcclException;
import io.nccl4j.internal.reference.bootstrap.Bootstrap;
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
import io.nccl4j.internal.util.RankSets;
import java.io.DataInput;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.ProtocolException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/**
 * This process's part of one communicator: its ranks, what is known of those of other processes,
 * and what all share.
 */
public final class CommunicatorState
    implements LinkContext, Bootstrap.Parent, CommunicatorEndpoint {
  /** How often the other processes are asked how far their ranks are, at most. */
  private static final long ASKING_NANOS = TimeUnit.MILLISECONDS.toNanos(50);

  /** How long a process may take to answer at least before it is said to be silent. */
  private static final long LEAST_SILENCE_NANOS = 300_000_000;

  /** How long a rank of another process may take to say what it has called. */
  private static final long EXPLAINING_NANOS = TimeUnit.SECONDS.toNanos(2);

  private final ProcessEndpoint site;
  private final RankMap plan;
  private final RankOptions options;
  private final List<RankState> peers = new ArrayList<>();
  // Null where a rank is of another process.
  private final HostedRank[] members;
  // Ranks of this process that have not told everybody that they leave; guarded by itself.
  private final BitSet staying = new BitSet();
  // Null where a process is this one.
  private final RemoteProcess[] remotes;
  private final LinkTable links;
  private final Bootstraps meetings;
  private final AtomicReference<RankFailure> fault = new AtomicReference<>();
  private final DirectSync board;
  private final boolean allShareMemory;
  // Whether anything has happened that a waiting rank should know: one cheap look for it.
  private volatile boolean alarm;
  private volatile long askedAt;
  private boolean enrolled;
  // What the ranks here came from, while they wait for other processes.
  private volatile Bootstrap connecting;

  public CommunicatorState(ProcessEndpoint site, RankMap plan, RankOptions options) {
    this.site = site;
    this.plan = plan;
    this.options = options;
    this.board = new DirectSync(plan.size());
    this.links = new LinkTable(this);
    this.meetings = new Bootstraps(site, this, options.text());
    long hosts = plan.processes().stream().map(ProcessAddress::host).distinct().count();
    this.allShareMemory = hosts == 1 && options.sharesMemory();
    this.members = new HostedRank[plan.size()];
    this.remotes = new RemoteProcess[plan.processes().size()];
    for (int rank = 0; rank < plan.size(); rank++) {
      RankState peer = new RankState(rank);
      peers.add(peer);
    }
    for (int process = 0; process < remotes.length; process++) {
      if (!plan.processes().get(process).process().equals(site.process())) {
        remotes[process] = new RemoteProcess(this, process);
      }
    }
    for (int rank = 0; rank < plan.size(); rank++) {
      if (remote(rank) == null) {
        members[rank] = new HostedRank(this, rank, plan.size());
        staying.set(rank);
      }
    }
  }

  /**
   * Takes part in a meeting until all ranks have connected; returns the member of the new world, or
   * null for a rank without a color.
   *
   * @throws NcclException if this rank is refused, or the meeting has failed for all ranks
   */
  public static HostedRank join(
      Participant participant, ProcessEndpoint site, RankOptions options) {
    Bootstrap meeting = participant.meeting();
    Bootstrap.RankAssignment seat = meeting.awaitSeat(participant);
    CommunicatorState world = null;
    try {
      if (seat != null) {
        world = form(seat.plan(), site, options, participant);
      }
      meeting.confirm(participant.rank());
      meeting.awaitDone(participant);
      return world == null ? null : world.member(seat.rank());
    } catch (RuntimeException | Error e) {
      String why = e instanceof NcclException failure ? failure.text() : e.toString();
      meeting.giveUp("rank " + participant.rank() + " failed to connect: " + why, null);
      if (world != null) {
        world.abandon("rank " + seat.rank() + " gave up connecting: " + why);
      }
      throw e;
    }
  }

  /** Makes this process's part of a planned world, or returns it if another rank has made it. */
  public static CommunicatorState form(
      RankMap plan, ProcessEndpoint site, RankOptions options, Participant participant) {
    return plan.form(
        CommunicatorState.class,
        participant,
        () -> {
          CommunicatorState made = new CommunicatorState(site, plan, options);
          made.connect(participant);
          return made;
        });
  }

  @Override
  public long id() {
    return plan.world();
  }

  @Override
  public Secret secret() {
    return plan.secret();
  }

  ProcessEndpoint site() {
    return site;
  }

  @Override
  public RankMap plan() {
    return plan;
  }

  @Override
  public int size() {
    return members.length;
  }

  @Override
  public int processes() {
    return remotes.length;
  }

  /** Returns whether all ranks are of this process. */
  public boolean inOneProcess() {
    return remotes.length == 1;
  }

  /** Returns a rank of this process. */
  public HostedRank member(int rank) {
    return members[rank];
  }

  /** Returns what is known of a rank of any process. */
  public RankState peer(int rank) {
    return peers.get(rank);
  }

  /** Returns the process of a rank, or null where it is this one. */
  public RemoteProcess remote(int rank) {
    return remotes[plan.processOf(rank)];
  }

  public RankOptions options() {
    return options;
  }

  /** Returns where the ranks of one process meet for direct transfers. */
  DirectSync board() {
    return board;
  }

  /** Returns the links of the ranks of this process. */
  public LinkTable links() {
    return links;
  }

  /** Returns where the ranks meet to make new communicators. */
  public Bootstraps meetings() {
    return meetings;
  }

  @Override
  public int sliceBytes() {
    return options.layout().sliceBytes();
  }

  @Override
  public boolean hosts(int rank) {
    return remote(rank) == null;
  }

  @Override
  public boolean sharesMemoryWith(int rank) {
    RemoteProcess remote = remote(rank);
    return remote != null && options.sharesMemory() && remote.location().host().equals(site.host());
  }

  @Override
  public boolean allShareMemory() {
    return allShareMemory;
  }

  @Override
  public Presence presence(int rank) {
    return peers.get(rank).presence();
  }

  @Override
  public String departure(int rank) {
    return peers.get(rank).departure();
  }

  @Override
  public void wake(int rank) {
    members[rank].wake();
  }

  @Override
  public String describe(int rank) {
    return describe(RankSets.of(rank));
  }

  @Override
  public void fail(int rank, String text) {
    raise(RankFailure.nonsense(text, RankSets.of(rank)));
  }

  @Override
  public InetSocketAddress address(int rank) {
    return remote(rank).location().address();
  }

  @Override
  public int greetingBytes() {
    return Handshake.GREETING_BYTES;
  }

  @Override
  public ByteBuffer claim(LinkKey key, byte[] greeting) throws IOException {
    return remote(key.to()).opening(Message.Kind.LINK, key::write).answer(greeting).message();
  }

  @Override
  public void announceMemory(LinkKey key, Path path) {
    remote(key.to()).tellMemory(key, path);
  }

  @Override
  public Bootstrap.Coordinator chair(int process, BootstrapKey occasion) {
    return remotes[process] == null ? null : remotes[process].chair(occasion);
  }

  @Override
  public Bootstrap.StateListener audience(int process, BootstrapKey occasion) {
    return remotes[process] == null ? null : remotes[process].audience(occasion);
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
    site.hold(plan.secret(), participant.meeting().function());
    synchronized (this) {
      enrolled = true;
    }
    connecting = participant.meeting();
    site.enroll(this);
    int self = 0;
    while (remotes[self] != null) {
      self++;
    }
    boolean connected = false;
    try {
      for (int process = 0; process < self; process++) {
        remotes[process].connect(participant);
      }
      for (int process = self + 1; process < remotes.length; process++) {
        remotes[process].awaitConnected(participant);
      }
      connected = true;
    } finally {
      connecting = null;
      if (!connected) {
        end();
      }
    }
  }

  /** Makes the rank that waits for the other processes look who has connected. */
  void noteConnected() {
    Bootstrap waiting = connecting;
    if (waiting != null) {
      waiting.wake();
    }
  }

  /** Ends this process's part of a world that has failed before all ranks had connected. */
  void abandon(String why) {
    raise(RankFailure.nonsense(why, ranksHere()));
    end();
  }

  @Override
  public void admitControl(Connection connection, DataInput in) throws IOException {
    UUID process = ProcessAddress.readUuid(in);
    for (RemoteProcess remote : remotes) {
      if (remote != null && remote.location().process().equals(process)) {
        remote.accept(connection);
        return;
      }
    }
    throw new ProtocolException("it is no process of this communicator");
  }

  @Override
  public void admitLink(Connection connection, DataInput in) throws IOException {
    links.admit(LinkKey.read(in), connection::detach);
  }

  public RankFailure fault() {
    return fault.get();
  }

  /**
   * Reports to all ranks what went wrong, unless something did before. Can be called again with the
   * same fault where the first call ended early, for want of memory.
   */
  void raise(RankFailure first) {
    fault.compareAndSet(null, first);
    raiseAlarm();
    if (first.equals(fault.get())) {
      for (RemoteProcess remote : remotes) {
        if (remote != null) {
          remote.tell(first);
        }
      }
    }
  }

  @Override
  public void failHere(String why) {
    BitSet here = ranksHere();
    int first = here.nextSetBit(0);
    raise(new RankFailure(first, RankFailure.Kind.RANK_FAILED, why, here, new BitSet(), null, 0));
  }

  private BitSet ranksHere() {
    BitSet here = new BitSet();
    for (int rank = 0; rank < members.length; rank++) {
      here.set(rank, members[rank] != null);
    }
    return here;
  }

  @Override
  public void announceBoard(Path path) {
    for (RemoteProcess remote : remotes) {
      if (remote != null) {
        remote.tellBoard(path);
      }
    }
  }

  /** Takes what another process says went wrong. */
  public void hear(RankFailure told) {
    fault.compareAndSet(null, told);
    raiseAlarm();
  }

  private void raiseAlarm() {
    alarm = true;
    for (HostedRank member : members) {
      if (member != null) {
        member.wake();
      }
    }
  }

  public boolean alarm() {
    return alarm;
  }

  /** Tells everybody that a rank of this process has been revoked, closed or aborted. */
  void tellPresence(RankState self) {
    boolean leaving = self.presence().left();
    for (RemoteProcess remote : remotes) {
      if (remote != null) {
        remote.tell(self);
      }
    }
    notePresence();
    if (leaving && lastToLeave(self)) {
      end();
    }
  }

  /**
   * Notes that a rank of this process has told everybody that it leaves, and returns whether all of
   * them have. That they have left does not say so: two may close at the same time.
   */
  private boolean lastToLeave(RankState self) {
    synchronized (staying) {
      staying.clear(self.rank());
      return staying.isEmpty();
    }
  }

  /** Makes everybody here look at who has gone. */
  void notePresence() {
    raiseAlarm();
    meetings.checkPresent();
  }

  /** Ends the connections with the other processes. */
  void end() {
    synchronized (this) {
      if (!enrolled) {
        return;
      }
      enrolled = false;
    }
    links.hostMemory().settle();
    site.dismiss(this);
    for (RemoteProcess remote : remotes) {
      if (remote != null) {
        remote.end();
      }
    }
    links.close();
    site.release(plan.secret());
  }

  @Override
  public void ask() {
    if (inOneProcess()) {
      return;
    }
    long now = System.nanoTime();
    if (askedAt == 0 || now - askedAt > ASKING_NANOS) {
      askedAt = now;
      for (RemoteProcess remote : remotes) {
        if (remote != null) {
          remote.ask(now);
        }
      }
    }
  }

  /**
   * Returns whether a rank may yet say what it has called, and asks it to.
   *
   * @param since when it was asked first, or 0
   */
  boolean mayExplain(int rank, long since) {
    if (remote(rank) == null || (since != 0 && System.nanoTime() - since > EXPLAINING_NANOS)) {
      return false;
    }
    ask();
    return true;
  }

  @Override
  public BitSet silent(BitSet ranks, long timeoutNanos) {
    // A process that is slow, since its machine has more to do, is not silent.
    long nanos = Math.max(LEAST_SILENCE_NANOS, timeoutNanos / 4);
    BitSet silent = new BitSet();
    ranks.stream()
        .filter(rank -> remote(rank) != null && remote(rank).silent(nanos))
        .forEach(silent::set);
    return silent;
  }

  @Override
  public String describe(BitSet ranks) {
    List<String> others = new ArrayList<>();
    for (int process = 0; process < remotes.length; process++) {
      if (remotes[process] != null && plan.ranksOf(process).intersects(ranks)) {
        others.add(remotes[process].location().toString());
      }
    }
    return RankSets.describe(ranks)
        + (others.isEmpty() ? "" : " (" + String.join(", ", others) + ")");
  }
}
