package io.nccl4j.internal.reference.rank;

import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.internal.reference.bootstrap.Bootstrap;
import io.nccl4j.internal.reference.bootstrap.BootstrapFailure;
import io.nccl4j.internal.reference.bootstrap.BootstrapKey;
import io.nccl4j.internal.reference.bootstrap.Connection;
import io.nccl4j.internal.reference.bootstrap.Handshake;
import io.nccl4j.internal.reference.bootstrap.Message;
import io.nccl4j.internal.reference.bootstrap.Participant;
import io.nccl4j.internal.reference.bootstrap.ProcessAddress;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.reference.transport.LinkKey;
import io.nccl4j.internal.reference.transport.Presence;
import io.nccl4j.internal.reference.transport.TcpSendLink;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.RankSets;
import io.nccl4j.spi.Contract;
import io.nccl4j.spi.FailureDetails;
import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.net.ProtocolException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.file.Path;
import java.util.BitSet;
import java.util.List;

/**
 * Another process that hosts ranks of a communicator, and the control connection to it. Changes of
 * presence are sent at once; the progress of ranks is sent on request, since it is rarely needed.
 */
public final class RemoteProcess implements Connection.Receiver {
  private final CommunicatorState communicator;
  private final int process;
  private final BitSet ranks;
  private volatile Connection connection;
  private volatile boolean lost;
  // Since when the process owes an answer: the oldest pending request, or the last answer if more
  // are pending; 0 if none is.
  private volatile long unansweredSince;
  private long requests;
  private volatile long answers;

  RemoteProcess(CommunicatorState communicator, int process) {
    this.communicator = communicator;
    this.process = process;
    this.ranks = communicator.rankMap().ranksOf(process);
  }

  ProcessAddress address() {
    return communicator.rankMap().processes().get(process);
  }

  BitSet ranks() {
    return ranks;
  }

  /** Describes the ranks and the process. */
  String describe() {
    return RankSets.describe(ranks) + " (" + address() + ")";
  }

  /** Connects to the process, if this process is the one that connects. */
  public void connect(Participant participant) {
    String function = participant.bootstrap().function();
    Deadline deadline = participant.deadline();
    try {
      connection =
          communicator
              .endpoint()
              .connect(
                  address(),
                  opening(
                      Message.Kind.CONTROL,
                      out -> ProcessAddress.writeUuid(out, communicator.endpoint().process())),
                  this,
                  deadline);
    } catch (SocketTimeoutException e) {
      NcclException timedOut =
          new NcclTimeoutException(
              function,
              deadline.timeout(),
              participant.describe(communicator.rankMap(), process)
                  + " did not accept a connection");
      throw Contract.get()
          .initDetails(
              timedOut,
              FailureDetails.of(
                  participant.communicator(),
                  new BitSet(),
                  participant.ranksOf(communicator.rankMap(), process)));
    } catch (ClosedByInterruptException e) {
      throw participant.bootstrap().interrupted(participant.rank());
    } catch (IOException e) {
      NcclException unreachable =
          RankFailure.remote(
              function,
              participant.describe(communicator.rankMap(), process)
                  + " cannot be reached at "
                  + address().address()
                  + ": "
                  + e);
      throw Contract.get()
          .initDetails(
              unreachable,
              FailureDetails.of(
                  participant.communicator(),
                  participant.ranksOf(communicator.rankMap(), process),
                  new BitSet()));
    }
  }

  /** Waits until the process has connected to this one. */
  void awaitConnected(Participant participant) {
    participant.awaitConnection(communicator.rankMap(), process, this::connected);
  }

  /** Returns the opening of a connection to the process. */
  Handshake.Opening opening(Message.Kind kind, Message.Body detail) {
    return new Handshake.Opening(
        kind, communicator.rankMap().secret(), address().process(), communicator.id(), detail);
  }

  /** Accepts the connection of the other process; in the thread of the event loop. */
  void accept(Connection accepted) throws ProtocolException {
    if (connection != null) {
      throw new ProtocolException(describe() + " is connected already");
    }
    accepted.setReceiver(this);
    connection = accepted;
    communicator.onRemoteConnected();
  }

  public boolean connected() {
    return connection != null;
  }

  /** Sends a message, unless the process is not connected any more. */
  public void send(ByteBuffer message) {
    Connection open = connection;
    if (open != null) {
      open.send(message);
    }
  }

  public void end() {
    Connection open = connection;
    if (open != null) {
      open.close();
    }
  }

  void announce(RankFailure failure) {
    send(Message.of(Message.Kind.FAILURE, failure::write));
  }

  /** Sends the state of a rank of this process. */
  void announce(RankState self) {
    sendState(Message.of(Message.Kind.PRESENCE, out -> write(out, self)));
  }

  /**
   * Writes the state of a rank, after how much it has sent if it has closed: a receiver that knew
   * only that the rank has closed would take data that is still on its way for missing.
   */
  private void write(DataOutput out, RankState state) throws IOException {
    Presence presence = state.presence();
    List<TcpSendLink> sent =
        presence == Presence.CLOSED ? communicator.links().sentBy(state.rank(), ranks) : List.of();
    out.writeInt(sent.size());
    for (TcpSendLink link : sent) {
      link.key().write(out);
      out.writeLong(link.sent());
    }
    out.writeInt(state.rank());
    state.write(out, presence);
  }

  /** Reads the state of one of its ranks; returns whether the rank's presence has changed. */
  private boolean readState(DataInput in) throws IOException {
    for (int left = Message.count(in); left > 0; left--) {
      communicator.links().expect(LinkKey.read(in), in.readLong());
    }
    return readPeer(in).read(in);
  }

  /**
   * Sends the state of ranks of this process, after the failure that may have ended one of them: a
   * process that received the state alone would take that end for the failure.
   *
   * @param state the message; the failure is read after it was written, since a rank learns of the
   *     failure before it ends
   */
  private void sendState(ByteBuffer state) {
    RankFailure known = communicator.failure();
    if (known != null) {
      announce(known);
    }
    send(state);
  }

  /** Sends the path of the shared memory of a link. */
  public void announceMemory(LinkKey key, Path path) {
    send(
        Message.of(
            Message.Kind.MEMORY,
            out -> {
              key.write(out);
              out.writeUTF(path.toString());
            }));
  }

  void refuseMemory(LinkKey key, String why) {
    send(
        Message.of(
            Message.Kind.MEMORY_REFUSED,
            out -> {
              key.write(out);
              Message.writeReason(out, why);
            }));
  }

  /** Requests the progress of the ranks, unless a request is still pending. */
  public void requestStatus() {
    if (unansweredSince == 0) {
      requestAnswer();
    }
  }

  /** Requests the progress of the ranks; returns the number of the answer. */
  synchronized long requestAnswer() {
    if (unansweredSince == 0) {
      unansweredSince = System.nanoTime();
    }
    send(Message.of(Message.Kind.STATUS_REQUEST, out -> {}));
    return ++requests;
  }

  private synchronized void countAnswer() {
    answers++;
    unansweredSince = answers == requests ? 0 : System.nanoTime();
  }

  /** Returns whether the process has sent this answer, or will not. */
  boolean answered(long request) {
    return lost || answers >= request;
  }

  /** Returns whether a request has been pending for longer than the given time. */
  public boolean silent(long nanos) {
    long since = unansweredSince;
    return !lost && since != 0 && System.nanoTime() - since > nanos;
  }

  @Override
  public void receive(Connection from, Message message) throws IOException {
    DataInput in = message.content();
    switch (message.kind()) {
      case PRESENCE -> receivePresence(in);
      case FAILURE -> communicator.receiveFailure(RankFailure.read(in));
      case STATUS_REQUEST -> answer();
      case STATUS -> receiveStatus(in);
      case MEMORY -> receiveMemory(in);
      case MEMORY_REFUSED -> receiveRefusal(in);
      case MEMBERSHIP_REQUEST -> receiveJoin(in);
      case BOOTSTRAP_STATE, BOOTSTRAP_QUERY, REJECTED, CONNECTED, GIVE_UP ->
          receiveBootstrapMessage(message.kind(), in);
      default -> throw new ProtocolException("it sent a " + message.kind() + " message");
    }
  }

  private RankState readPeer(DataInput in) throws IOException {
    int rank = in.readInt();
    checkOwn(rank);
    return communicator.rankState(rank);
  }

  private void checkOwn(int rank) throws ProtocolException {
    if (rank < 0 || !ranks.get(rank)) {
      throw new ProtocolException("it names rank " + rank + ", which is not its own");
    }
  }

  private int readConfirmed(DataInput in) throws IOException {
    int rank = in.readInt();
    // The process that created the id of a grow forwards the messages of the new ranks.
    if (rank < 0 || (rank < communicator.size() && !ranks.get(rank))) {
      throw new ProtocolException("it reports that rank " + rank + " has connected");
    }
    return rank;
  }

  private void receivePresence(DataInput in) throws IOException {
    if (readState(in)) {
      communicator.onPresenceChanged();
    } else {
      communicator.bootstraps().check();
    }
  }

  private void receiveMemory(DataInput in) throws IOException {
    LinkKey key = LinkKey.read(in);
    if (key.from() < 0 || !ranks.get(key.from())) {
      throw new ProtocolException("it names " + key + ", which is not its own");
    }
    communicator.links().admitMemory(key, in.readUTF());
  }

  private void receiveRefusal(DataInput in) throws IOException {
    LinkKey key = LinkKey.read(in);
    checkOwn(key.to());
    communicator.links().refuseMemory(key, reason(in));
  }

  private String reason(DataInput in) throws IOException {
    return describe() + ": " + in.readUTF();
  }

  private void answer() {
    BitSet own = new BitSet();
    for (int rank = 0; rank < communicator.size(); rank++) {
      own.set(rank, communicator.hosts(rank));
    }
    ByteBuffer status =
        Message.of(
            Message.Kind.STATUS,
            out -> {
              out.writeInt(own.cardinality());
              for (int rank = own.nextSetBit(0); rank >= 0; rank = own.nextSetBit(rank + 1)) {
                write(out, communicator.rankState(rank));
              }
            });
    // It may have a shrink whose rank has not yet come to announce it; see setShrink.
    communicator.bootstraps().check();
    sendState(status);
  }

  private void receiveStatus(DataInput in) throws IOException {
    boolean changed = false;
    for (int left = Message.count(in); left > 0; left--) {
      changed |= readState(in);
    }
    countAnswer();
    if (changed) {
      communicator.onPresenceChanged();
    } else {
      communicator.bootstraps().check();
    }
  }

  private void receiveBootstrapMessage(Message.Kind kind, DataInput in) throws IOException {
    BootstrapKey key = BootstrapKey.read(in);
    int newSize = in.readInt();
    if (kind == Message.Kind.BOOTSTRAP_STATE) {
      receiveBootstrapState(key, newSize, in);
      return;
    }
    // These follow an arrival or an assignment, so an unknown bootstrap is done and removed. But a
    // rank may give up a shrink before it arrives, which ranks that call later need to see.
    Bootstrap bootstrap =
        kind == Message.Kind.GIVE_UP && key.function().equals(BootstrapKey.SHRINK)
            ? communicator.bootstraps().bootstrapFor(key, newSize)
            : communicator.bootstraps().known(key, newSize);
    if (bootstrap == null) {
      ProcessEndpoint.log()
          .debug("{} was ignored: there is no bootstrap for {} and its size", kind, key);
      return;
    }
    switch (kind) {
      case REJECTED -> bootstrap.applyRejection(in.readInt(), in.readUTF());
      case BOOTSTRAP_QUERY -> bootstrap.report(stateListener(key));
      case CONNECTED -> bootstrap.confirm(readConfirmed(in));
      default -> bootstrap.fail(BootstrapFailure.read(in));
    }
  }

  /** Applies the state of a bootstrap; ranks that call later need to see that it has failed. */
  private void receiveBootstrapState(BootstrapKey key, int newSize, DataInput in)
      throws IOException {
    Bootstrap bootstrap;
    try {
      bootstrap = communicator.bootstraps().bootstrapFor(key, newSize);
    } catch (NcclException e) {
      // A grow to a size that the ranks here do not expect; their own requests are rejected.
      ProcessEndpoint.log().debug("BOOTSTRAP_STATE was ignored: {}", e.text());
      return;
    }
    bootstrap.applyState(in);
  }

  private void receiveJoin(DataInput in) throws IOException {
    BootstrapKey key = BootstrapKey.read(in);
    int newSize = in.readInt();
    Bootstrap.MembershipRequest request = Bootstrap.MembershipRequest.read(in);
    if (request.rank() < communicator.size()) {
      checkOwn(request.rank());
    }
    try {
      Bootstrap bootstrap = communicator.bootstraps().bootstrapFor(key, newSize);
      bootstrap.arrive(request);
    } catch (NcclException e) {
      send(
          Message.of(
              Message.Kind.REJECTED,
              out -> {
                key.write(out);
                out.writeInt(newSize);
                out.writeInt(request.rank());
                Message.writeReason(out, e.text());
              }));
    }
  }

  /** Returns the coordinator by which this process's ranks join a bootstrap of the other one. */
  public Bootstrap.Coordinator coordinator(BootstrapKey key) {
    return new Bootstrap.Coordinator() {
      @Override
      public void arrive(int expected, Bootstrap.MembershipRequest request) {
        send(
            Message.of(
                Message.Kind.MEMBERSHIP_REQUEST,
                out -> {
                  key.write(out);
                  out.writeInt(expected);
                  request.write(out);
                }));
      }

      @Override
      public void confirm(int expected, int rank) {
        send(
            Message.of(
                Message.Kind.CONNECTED,
                out -> {
                  key.write(out);
                  out.writeInt(expected);
                  out.writeInt(rank);
                }));
      }

      @Override
      public void giveUp(int expected, BootstrapFailure why) {
        send(
            Message.of(
                Message.Kind.GIVE_UP,
                out -> {
                  key.write(out);
                  out.writeInt(expected);
                  why.write(out);
                }));
      }

      @Override
      public void query(int expected) {
        send(
            Message.of(
                Message.Kind.BOOTSTRAP_QUERY,
                out -> {
                  key.write(out);
                  out.writeInt(expected);
                }));
      }

      @Override
      public String departure() {
        BitSet gone = new BitSet();
        ranks.stream().filter(rank -> communicator.presence(rank).left()).forEach(gone::set);
        return gone.equals(ranks) ? communicator.rankState(ranks.nextSetBit(0)).departure() : null;
      }

      @Override
      public String toString() {
        return describe();
      }
    };
  }

  /** Returns the listener that sends the state of a bootstrap to the other process. */
  Bootstrap.StateListener stateListener(BootstrapKey key) {
    return new Bootstrap.StateListener() {
      @Override
      public void onState(int expected, Message.Body state) {
        send(
            Message.of(
                Message.Kind.BOOTSTRAP_STATE,
                out -> {
                  key.write(out);
                  out.writeInt(expected);
                  state.write(out);
                }));
      }

      @Override
      public void onRejected(int rank, String text) {
        // Requests on the control connection are answered at once.
      }

      @Override
      public void addSilent(BitSet silent) {
        // The ranks of a communicator ask each other.
      }
    };
  }

  @Override
  public void ended(Connection from, String why, boolean protocolViolation) {
    lost = true;
    boolean somePresent = false;
    for (int rank = ranks.nextSetBit(0); rank >= 0; rank = ranks.nextSetBit(rank + 1)) {
      somePresent |= !communicator.presence(rank).left();
    }
    if (!somePresent) {
      return;
    }
    if (protocolViolation) {
      RankFailure failure =
          RankFailure.protocolViolation(describe() + " violated the protocol: " + why, ranks);
      communicator.raise(failure);
    }
    String how =
        protocolViolation
            ? address() + " violated the protocol: " + why
            : address() + " ended" + (why == null ? "" : ": " + why);
    ranks.stream().forEach(rank -> communicator.rankState(rank).markLost(how));
    communicator.links().sharedMemory().lost(ranks);
    communicator.onPresenceChanged();
    warn(
        "%s of a communicator of %d: %s"
            .formatted(RankSets.describe(ranks), communicator.size(), how));
  }

  /**
   * Logs in another thread: the first message of a process initializes log4j, and each may wait for
   * an appender, but other communicators depend on the event loop. A program that exits at once may
   * end before the message; its exceptions name the lost ranks too.
   */
  static void warn(String text) {
    Thread.ofVirtual().name("nccl4j-logging").start(() -> ProcessEndpoint.log().warn(text));
  }
}
