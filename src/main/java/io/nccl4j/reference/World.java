package io.nccl4j.reference;

import io.nccl4j.NcclException;
import java.io.DataInput;
import java.io.IOException;
import java.net.ProtocolException;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/**
 * This process's part of one communicator: its ranks, what is known of those of other processes,
 * and what all share.
 */
final class World {
  /** What a link is for; links of different kinds never meet. */
  enum Route {
    RING,
    UP,
    DOWN,
    EXCHANGE,
    MESSAGES
  }

  /** Which of all links one is. */
  record LinkKey(Route route, int channel, int from, int to) {
    @Override
    public String toString() {
      return "link " + route + " " + channel + " from rank " + from + " to rank " + to;
    }
  }

  /** How often the other processes are asked how far their ranks are, at most. */
  private static final long ASKING_NANOS = TimeUnit.MILLISECONDS.toNanos(50);

  /** How long a rank of another process may take to say what it has called. */
  private static final long EXPLAINING_NANOS = TimeUnit.SECONDS.toNanos(2);

  private final Site site;
  private final Plan plan;
  private final ReferenceOptions options;
  private final List<Peer> peers = new ArrayList<>();
  // Null where a rank is of another process.
  private final Member[] members;
  // Ranks of this process that have not told everybody that they leave; guarded by itself.
  private final BitSet staying = new BitSet();
  // Null where a process is this one.
  private final Remote[] remotes;
  private final ConcurrentHashMap<LinkKey, MemoryLink> links = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<LinkKey, TcpSendLink> leaving = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<LinkKey, TcpReceiveLink> arriving = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<Occasion, Meeting> meetings = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<Occasion, Growth> growths = new ConcurrentHashMap<>();
  private final AtomicReference<Fault> fault = new AtomicReference<>();
  private final Board board;
  private final HostMemory hostMemory;
  // Whether anything has happened that a waiting rank should know: one cheap look for it.
  private volatile boolean alarm;
  private volatile long askedAt;
  private boolean enrolled;
  // What the ranks here came from, while they wait for other processes.
  private volatile Meeting connecting;

  World(Site site, Plan plan, ReferenceOptions options) {
    this.site = site;
    this.plan = plan;
    this.options = options;
    this.board = new Board(plan.size());
    this.hostMemory = new HostMemory(this);
    this.members = new Member[plan.size()];
    this.remotes = new Remote[plan.processes().size()];
    for (int rank = 0; rank < plan.size(); rank++) {
      Peer peer = new Peer(rank);
      peers.add(peer);
    }
    for (int process = 0; process < remotes.length; process++) {
      if (!plan.processes().get(process).process().equals(site.process())) {
        remotes[process] = new Remote(this, process);
      }
    }
    for (int rank = 0; rank < plan.size(); rank++) {
      if (remote(rank) == null) {
        members[rank] = new Member(this, rank, plan.size());
        staying.set(rank);
      }
    }
  }

  /** Returns a number that all ranks know this world by, and that no other world has. */
  long id() {
    return plan.world();
  }

  Site site() {
    return site;
  }

  Plan plan() {
    return plan;
  }

  int size() {
    return members.length;
  }

  /** Returns whether all ranks are of this process. */
  boolean inOneProcess() {
    return remotes.length == 1;
  }

  /** Returns a rank of this process. */
  Member member(int rank) {
    return members[rank];
  }

  /** Returns what is known of a rank of any process. */
  Peer peer(int rank) {
    return peers.get(rank);
  }

  /** Returns the process of a rank, or null where it is this one. */
  Remote remote(int rank) {
    return remotes[plan.processOf(rank)];
  }

  ReferenceOptions options() {
    return options;
  }

  /** Returns where the ranks of one process meet for direct transfers. */
  Board board() {
    return board;
  }

  /** Returns what the ranks share of their host's memory. */
  HostMemory hostMemory() {
    return hostMemory;
  }

  /** Returns the end of a link that a rank of this process sends by. */
  SendLink sendLink(Route route, int channel, int from, int to) {
    LinkKey key = new LinkKey(route, channel, from, to);
    if (remote(to) == null) {
      return memoryLink(key);
    }
    return hostMemory.reaches(to) ? hostMemory.sendLink(key) : overTcp(key);
  }

  /** Returns the end of a link over TCP that a rank of this process sends by. */
  TcpSendLink overTcp(LinkKey key) {
    return leaving.computeIfAbsent(key, k -> new TcpSendLink(this, k));
  }

  /** Returns the end of a link that a rank of this process receives by. */
  ReceiveLink receiveLink(Route route, int channel, int from, int to) {
    LinkKey key = new LinkKey(route, channel, from, to);
    if (remote(from) == null) {
      return memoryLink(key);
    }
    return hostMemory.reaches(from) ? hostMemory.receiveLink(key) : arriving(key);
  }

  private MemoryLink memoryLink(LinkKey key) {
    return links.computeIfAbsent(key, k -> new MemoryLink(member(k.from), member(k.to)));
  }

  /** Returns the end of a link over TCP that a rank of this process receives by. */
  TcpReceiveLink arriving(LinkKey key) {
    return arriving.computeIfAbsent(key, k -> new TcpReceiveLink(this, k));
  }

  /** Returns the links over TCP that a rank has sent by to another process. */
  List<TcpSendLink> sentBy(int rank, int process) {
    return leaving.values().stream()
        .filter(link -> link.key().from == rank && plan.processOf(link.key().to) == process)
        .toList();
  }

  /** Says how many slices have been sent over a link whose sender has closed. */
  void expect(LinkKey key, long slices) throws ProtocolException {
    checkKey(key);
    arriving(key).expect(slices);
  }

  /** Throws if a link does not lead from another process to this one. */
  void checkKey(LinkKey key) throws ProtocolException {
    boolean sense =
        key.from >= 0
            && key.to >= 0
            && key.from < size()
            && key.to < size()
            && remote(key.from) != null
            && remote(key.to) == null;
    if (!sense) {
      throw new ProtocolException(key + " does not lead to this process");
    }
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
        participant.awaitConnection(remotes[process]);
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
    Meeting waiting = connecting;
    if (waiting != null) {
      waiting.wake();
    }
  }

  /** Ends this process's part of a world that has failed before all ranks had connected. */
  void abandon(String why) {
    raise(Fault.nonsense(why, ranksHere()));
    end();
  }

  /** Site: takes the connection that another process talks over. */
  void admitControl(Connection connection, DataInput in) throws IOException {
    java.util.UUID process = Location.readUuid(in);
    for (Remote remote : remotes) {
      if (remote != null && remote.location().process().equals(process)) {
        remote.accept(connection);
        return;
      }
    }
    throw new ProtocolException("it is no process of this communicator");
  }

  /** Site: takes the connection of a link. */
  void admitLink(Connection connection, DataInput in) throws IOException {
    LinkKey key = readKey(in);
    checkKey(key);
    if (!arriving(key).offer()) {
      throw new ProtocolException(key + " is connected already");
    }
    SocketChannel channel = connection.detach();
    arriving(key).connected(channel);
    member(key.to).wake();
  }

  static LinkKey readKey(DataInput in) throws IOException {
    int route = in.readUnsignedByte();
    if (route >= Route.values().length) {
      throw new ProtocolException("there is no route " + route);
    }
    return new LinkKey(Route.values()[route], in.readInt(), in.readInt(), in.readInt());
  }

  @SuppressWarnings("EnumOrdinal") // Both ends are of one version of the protocol.
  static void writeKey(java.io.DataOutput out, LinkKey key) throws IOException {
    out.writeByte(key.route.ordinal());
    out.writeInt(key.channel);
    out.writeInt(key.from);
    out.writeInt(key.to);
  }

  /** Returns where the ranks meet for a split or a shrink. */
  Meeting meeting(Occasion occasion) {
    return meetings.computeIfAbsent(
        occasion,
        o -> {
          BitSet expected = new BitSet();
          expected.set(0, size());
          expected.andNot(o.excluded());
          return meeting(o, expected, done -> over(o, done));
        });
  }

  /** Returns how many splits and shrinks are known that are not done; for tests. */
  int openMeetings() {
    return meetings.size();
  }

  /**
   * Makes the meeting of an occasion: here if this process convenes it, else at the one that does.
   */
  Meeting meeting(Occasion occasion, BitSet expected, Meeting.End end) {
    int convener = plan.processOf(expected.nextSetBit(0));
    Meeting meeting = new Meeting(occasion.function(), plan.secret(), expected, this, end);
    if (remotes[convener] != null) {
      meeting.attend(remotes[convener].chair(occasion));
    } else {
      BitSet told = new BitSet();
      expected.stream().filter(rank -> rank < size()).map(plan::processOf).forEach(told::set);
      told.stream()
          .filter(process -> remotes[process] != null)
          .forEach(process -> meeting.addAudience(remotes[process].audience(occasion)));
    }
    return meeting;
  }

  private void over(Occasion occasion, boolean done) {
    // A rank that calls later than the others needs to find that the meeting has failed.
    if (done) {
      forget(occasion);
    }
  }

  /** Returns where the ranks meet for a grow. */
  Growth growth(Occasion occasion) {
    return growths.computeIfAbsent(occasion, o -> new Growth(this, o));
  }

  /**
   * Returns the meeting of an occasion that ranks of another process speak of.
   *
   * @throws NcclException if a grow cannot have this size, or the ranks here want another one
   */
  Meeting meetingFor(Occasion occasion, int newSize) throws ProtocolException {
    if (occasion.function().equals(Occasion.GROW)) {
      return growth(occasion).meeting(newSize);
    }
    if (occasion.excluded().cardinality() >= size()) {
      throw new ProtocolException("a " + occasion.function() + " leaves no rank");
    }
    return meeting(occasion);
  }

  /** Returns the meeting of an occasion, or null if there is none for this size. */
  Meeting knownMeeting(Occasion occasion, int newSize) {
    if (occasion.function().equals(Occasion.GROW)) {
      Growth growth = growths.get(occasion);
      return growth == null ? null : growth.knownMeeting(newSize);
    }
    return meetings.get(occasion);
  }

  void forget(Occasion occasion) {
    meetings.remove(occasion);
    growths.remove(occasion);
  }

  Fault fault() {
    return fault.get();
  }

  /**
   * Reports to all ranks what went wrong, unless something did before. Can be called again with the
   * same fault where the first call ended early, for want of memory.
   */
  void raise(Fault first) {
    fault.compareAndSet(null, first);
    raiseAlarm();
    if (first.equals(fault.get())) {
      for (Remote remote : remotes) {
        if (remote != null) {
          remote.tell(first);
        }
      }
    }
  }

  /** Tells all ranks that those of this process cannot go on. */
  void failHere(String why) {
    BitSet here = ranksHere();
    int first = here.nextSetBit(0);
    raise(new Fault(first, Fault.Kind.RANK_FAILED, why, here, new BitSet(), null, 0));
  }

  private BitSet ranksHere() {
    BitSet here = new BitSet();
    for (int rank = 0; rank < members.length; rank++) {
      here.set(rank, members[rank] != null);
    }
    return here;
  }

  /** Tells the other processes where the board of all ranks is. */
  void tellBoard(Path path) {
    for (Remote remote : remotes) {
      if (remote != null) {
        remote.tellBoard(path);
      }
    }
  }

  /** Takes what another process says went wrong. */
  void hear(Fault told) {
    fault.compareAndSet(null, told);
    raiseAlarm();
  }

  private void raiseAlarm() {
    alarm = true;
    for (Member member : members) {
      if (member != null) {
        member.wake();
      }
    }
  }

  boolean alarm() {
    return alarm;
  }

  /** Tells everybody that a rank of this process has been revoked, closed or aborted. */
  void tellPresence(Peer self) {
    boolean leaving = self.left();
    for (Remote remote : remotes) {
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
  private boolean lastToLeave(Peer self) {
    synchronized (staying) {
      staying.clear(self.rank());
      return staying.isEmpty();
    }
  }

  /** Makes everybody here look at who has gone. */
  void notePresence() {
    raiseAlarm();
    meetings.values().forEach(Meeting::checkPresent);
    growths.values().forEach(Growth::checkPresent);
  }

  /** Ends the connections with the other processes. */
  void end() {
    synchronized (this) {
      if (!enrolled) {
        return;
      }
      enrolled = false;
    }
    hostMemory.settle();
    site.dismiss(this);
    for (Remote remote : remotes) {
      if (remote != null) {
        remote.end();
      }
    }
    leaving.values().forEach(TcpSendLink::close);
    arriving.values().forEach(TcpReceiveLink::close);
    hostMemory.end();
    site.release(plan.secret());
  }

  /** Asks the other processes how far their ranks are, if nobody has lately. */
  void ask() {
    if (inOneProcess()) {
      return;
    }
    long now = System.nanoTime();
    if (askedAt == 0 || now - askedAt > ASKING_NANOS) {
      askedAt = now;
      for (Remote remote : remotes) {
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

  /** Returns those of some ranks whose processes have owed an answer for so long. */
  BitSet silent(BitSet ranks, long nanos) {
    BitSet silent = new BitSet();
    ranks.stream()
        .filter(rank -> remote(rank) != null && remote(rank).silent(nanos))
        .forEach(silent::set);
    return silent;
  }

  /** Names ranks, and the processes of those that are of others. */
  String describe(BitSet ranks) {
    List<String> others = new ArrayList<>();
    for (int process = 0; process < remotes.length; process++) {
      if (remotes[process] != null && plan.ranksOf(process).intersects(ranks)) {
        others.add(remotes[process].location().toString());
      }
    }
    return Member.ranks(ranks) + (others.isEmpty() ? "" : " (" + String.join(", ", others) + ")");
  }
}
