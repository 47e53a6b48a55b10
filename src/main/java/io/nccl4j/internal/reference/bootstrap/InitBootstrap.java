package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.NcclResult;
import io.nccl4j.NcclSystemException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.util.Deadline;
import java.io.DataInput;
import java.io.IOException;
import java.net.ProtocolException;
import java.net.SocketTimeoutException;
import java.util.BitSet;

/**
 * Where ranks that come by a unique id meet: in the process that has made the id, which convenes,
 * or on the way to it. The site knows a gathering until it is complete or one rank has failed.
 */
public final class InitBootstrap implements BootstrapTarget {
  public static final String CONNECT = "connect";

  private final ProcessEndpoint endpoint;
  private final UniqueId id;
  private final String function;
  private final int size;
  private final String options;
  private final Bootstrap bootstrap;
  private Way way;

  private InitBootstrap(
      ProcessEndpoint site, UniqueId id, ReferenceId meaning, String function, JoinRequest first) {
    this.endpoint = site;
    this.id = id;
    this.function = function;
    this.size = first.size();
    this.options = first.options();
    BitSet expected = new BitSet();
    expected.set(0, size);
    this.bootstrap = new Bootstrap(function, meaning.secret(), expected, null, this::over);
    if (!meaning.maker().process().equals(site.process())) {
      way = new Way(meaning);
      bootstrap.follow(way);
    }
  }

  private void over(boolean done) {
    endpoint.close(id, this);
    if (way == null) {
      endpoint.spend(ReferenceId.of(id).secret());
    } else {
      way.close();
    }
  }

  /** Returns a new id that only the reference backend understands. */
  public static UniqueId newId(ProcessEndpoint site, String function) {
    Secret secret = Secret.random();
    if (ProcessEndpoint.acceptsRemoteRanks()) {
      try {
        site.make(secret, function);
      } catch (NcclSystemException e) {
        if (SocketAddresses.setting() != null) {
          throw e;
        }
        // Good enough for the ranks of this process, which may be all.
        ProcessEndpoint.log().warn("ranks of other processes cannot come: {}", e.getMessage());
        site.makeForOwn(secret);
      }
    } else {
      site.makeForOwn(secret);
    }
    return new ReferenceId(site.address(), secret).toUniqueId();
  }

  /** Closes an id that a site has made for a communicator, and fails those that wait there. */
  public static void closeId(ProcessEndpoint site, UniqueId id) {
    ReferenceId meaning = ReferenceId.of(id);
    if (!meaning.maker().process().equals(site.process())) {
      throw new IllegalArgumentException(
          "id is " + id + ", which " + meaning.maker() + " made; only that process can close it");
    }
    BootstrapTarget target;
    synchronized (site.targetsLock()) {
      target = site.target(id);
      if (target == null) {
        site.discard(meaning.secret());
      }
    }
    if (target != null && target.grows()) {
      throw new IllegalArgumentException(
          "id is " + id + ", the id of a grow, which is closed with its communicator");
    }
    if (target != null) {
      target.fail(meaning.maker() + " closed " + id);
    }
  }

  @Override
  public boolean grows() {
    return false;
  }

  @Override
  public void fail(String why) {
    bootstrap.fail(why, null);
  }

  /** Finds where the ranks of an id meet, or opens it. */
  public static BootstrapTarget of(
      ProcessEndpoint site, UniqueId id, String function, JoinRequest visitor) {
    ReferenceId meaning = ReferenceId.of(id);
    boolean here = meaning.maker().process().equals(site.process());
    synchronized (site.targetsLock()) {
      BootstrapTarget target = site.target(id);
      if (target == null && here && function.equals(BootstrapKey.GROW)) {
        throw new NcclInvalidUsageException(
            function,
            NcclResult.INVALID_USAGE.code(),
            id + " is not the id of a grow that is still to come; one is good once",
            "");
      }
      if (target == null && here && !site.isGood(meaning.secret())) {
        throw new NcclInvalidUsageException(
            function,
            NcclResult.INVALID_USAGE.code(),
            id
                + " is no longer valid: its ranks have come or have given up, or it was closed, or its"
                + " process has failed to listen",
            "");
      }
      if (target != null && target.grows() && function.equals(CONNECT)) {
        throw new NcclInvalidUsageException(
            function,
            NcclResult.INVALID_USAGE.code(),
            id + " is the id of a grow; new ranks come by Backend.join",
            "");
      }
      if (target == null) {
        InitBootstrap opened = new InitBootstrap(site, id, meaning, function, visitor);
        site.open(id, opened);
        target = opened;
      }
      return target;
    }
  }

  @Override
  public Bootstrap admit(JoinRequest visitor, Deadline deadline) {
    int rank = visitor.rank();
    if (visitor.size() != size) {
      throw refused(
          "rank " + rank + " wants " + visitor.size() + " ranks, the ranks before it " + size);
    }
    if (!visitor.options().equals(options)) {
      throw refused(
          "rank "
              + rank
              + " has other options than the ranks before it: "
              + visitor.options()
              + ", "
              + options);
    }
    if (way != null) {
      way.open(rank, deadline);
    }
    ProcessAddress at = visitor.process() != null ? visitor.process() : endpoint.address();
    bootstrap.arrive(new Bootstrap.MembershipRequest(rank, 0, rank, at));
    return bootstrap;
  }

  private NcclInvalidUsageException refused(String text) {
    bootstrap.noteRejection(text);
    return new NcclInvalidUsageException(function, NcclResult.INVALID_USAGE.code(), text, "");
  }

  @Override
  public void addListener(JoinRequest visitor, Bootstrap.StateListener audience) {
    bootstrap.addListener(audience);
  }

  /** The connection to the process that has made the id. */
  private final class Way implements Bootstrap.Coordinator, Connection.Receiver {
    private final ReferenceId target;
    private volatile Connection connection;
    private volatile String broken;

    Way(ReferenceId target) {
      this.target = target;
    }

    /** Connects for a rank, unless another one of this process has before. */
    synchronized void open(int rank, Deadline deadline) {
      // It may have ended since the rank has found this gathering.
      bootstrap.checkNotOver(rank);
      if (connection != null) {
        return;
      }
      if (target.maker().address() == null) {
        throw new IllegalArgumentException(
            "id is "
                + id
                + ", which "
                + target.maker()
                + " made that takes ranks of its own only: "
                + SocketAddresses.VARIABLE
                + " was none there, or no network interface was up");
      }
      endpoint.retain(target.secret(), function);
      try {
        Handshake.Opening opening =
            new Handshake.Opening(
                Message.Kind.JOIN, target.secret(), target.maker().process(), 0, out -> {});
        connection = endpoint.connect(target.maker(), opening, this, deadline);
      } catch (IOException e) {
        endpoint.release(target.secret());
        String text = target.maker() + " at " + target.maker().address() + ", which made the id";
        bootstrap.fail(text + ", cannot be reached: " + e.getMessage(), null);
        throw e instanceof SocketTimeoutException
            ? new NcclTimeoutException(function, deadline.timeout(), text + ", did not answer")
            : new NcclRemoteException(
                function,
                NcclResult.REMOTE_ERROR.code(),
                text + ", cannot be reached: " + e.getMessage(),
                "");
      }
    }

    @Override
    public void arrive(int expected, Bootstrap.MembershipRequest wish) {
      connection.send(
          Message.of(
              Message.Kind.JOIN,
              out -> {
                out.write(id.toBytes());
                out.writeUTF(function);
                out.writeInt(size);
                out.writeUTF(options);
                wish.write(out);
              }));
    }

    @Override
    public void confirm(int expected, int rank) {
      connection.send(Message.of(Message.Kind.CONNECTED, out -> out.writeInt(rank)));
    }

    @Override
    public void giveUp(int expected, String text, BitSet missing) {
      connection.send(
          Message.of(
              Message.Kind.GIVE_UP,
              out -> {
                Message.writeReason(out, text);
                Message.writeBits(out, missing);
              }));
    }

    @Override
    public String departure() {
      return broken;
    }

    @Override
    public void receive(Connection from, Message message) throws IOException {
      DataInput in = message.content();
      switch (message.kind()) {
        case MEETING -> {
          in.readInt();
          bootstrap.applyState(in);
        }
        case REFUSED -> bootstrap.applyRejection(in.readInt(), in.readUTF());
        default -> throw new ProtocolException("it sent a " + message.kind() + " message");
      }
    }

    /** Ends the connection, whose purpose is fulfilled. */
    void close() {
      if (connection != null) {
        connection.close();
        endpoint.release(target.secret());
      }
    }

    @Override
    public void ended(Connection from, String why, boolean nonsense) {
      broken =
          target.maker()
              + ", which made the id, ended the connection"
              + (why == null ? "" : ": " + why);
      bootstrap.checkPresent();
    }

    @Override
    public String toString() {
      return target.maker() + ", which made the id,";
    }
  }
}
