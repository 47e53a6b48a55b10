package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.NcclException;
import io.nccl4j.NcclResult;
import io.nccl4j.NcclSystemException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.PortRange;
import io.nccl4j.spi.Contract;
import java.io.DataInput;
import java.io.IOException;
import java.net.ProtocolException;
import java.net.SocketTimeoutException;
import java.nio.channels.ClosedByInterruptException;
import java.util.BitSet;

/**
 * The bootstrap of the ranks that join by a unique id. The process that created the id coordinates
 * it; another process connects to that one. The process endpoint keeps it until all ranks have
 * joined or one has failed.
 */
public final class InitBootstrap implements BootstrapTarget {
  public static final String CONNECT = "connect";

  private final ProcessEndpoint endpoint;
  private final UniqueId id;
  private final String function;
  private final int size;
  private final String options;
  private final Bootstrap bootstrap;
  private Way remoteCoordinator;

  private InitBootstrap(
      ProcessEndpoint endpoint,
      UniqueId id,
      ReferenceId referenceId,
      String function,
      JoinRequest first) {
    this.endpoint = endpoint;
    this.id = id;
    this.function = function;
    this.size = first.size();
    this.options = first.options();
    BitSet expected = new BitSet();
    expected.set(0, size);
    this.bootstrap =
        new Bootstrap(function, referenceId.secret(), expected, null, this::onComplete);
    if (!referenceId.maker().process().equals(endpoint.process())) {
      remoteCoordinator = new Way(referenceId);
      bootstrap.setCoordinator(remoteCoordinator);
    }
  }

  private void onComplete(boolean done) {
    endpoint.close(id, this);
    if (remoteCoordinator == null) {
      endpoint.invalidate(ReferenceId.of(id).secret());
    } else {
      remoteCoordinator.close();
    }
  }

  /** Returns a new id of the reference backend. */
  public static UniqueId newId(ProcessEndpoint endpoint, String function) {
    Secret secret = Secret.random();
    if (ProcessEndpoint.acceptsRemoteRanks()) {
      try {
        endpoint.retainForId(secret, function);
      } catch (NcclSystemException e) {
        if (SocketAddresses.setting() != null || PortRange.configured().isPresent()) {
          throw e;
        }
        // The id still works for the ranks of this process, which may be all.
        ProcessEndpoint.log().warn("ranks of other processes cannot join: {}", e.getMessage());
        endpoint.addLocal(secret);
      }
    } else {
      endpoint.addLocal(secret);
    }
    return new ReferenceId(endpoint.address(), secret).toUniqueId();
  }

  /** Closes an id that an endpoint has created for a connect, and fails the waiting ranks. */
  public static void closeId(ProcessEndpoint endpoint, UniqueId id) {
    ReferenceId referenceId = ReferenceId.of(id);
    if (!referenceId.maker().process().equals(endpoint.process())) {
      throw new IllegalArgumentException(
          "id is "
              + id
              + ", which "
              + referenceId.maker()
              + " created; only that process can close it");
    }
    BootstrapTarget target;
    synchronized (endpoint.targetsLock()) {
      target = endpoint.target(id);
      if (target == null) {
        endpoint.discard(referenceId.secret());
      }
    }
    if (target != null && target.grows()) {
      throw new IllegalArgumentException(
          "id is " + id + ", the id of a grow, which is closed with its communicator");
    }
    if (target != null) {
      target.fail(referenceId.maker() + " closed " + id);
    }
  }

  @Override
  public boolean grows() {
    return false;
  }

  @Override
  public void fail(String why) {
    bootstrap.fail(BootstrapFailure.of(why));
  }

  /** Returns the bootstrap target of an id, and creates it if necessary. */
  public static BootstrapTarget of(
      ProcessEndpoint endpoint, UniqueId id, String function, JoinRequest request) {
    ReferenceId referenceId = ReferenceId.of(id);
    boolean here = referenceId.maker().process().equals(endpoint.process());
    synchronized (endpoint.targetsLock()) {
      BootstrapTarget target = endpoint.target(id);
      if (target == null && here && function.equals(BootstrapKey.GROW)) {
        throw Contract.get()
            .failure(
                function,
                NcclResult.INVALID_USAGE.code(),
                id + " is not the id of a pending grow; an id can be used once",
                "");
      }
      if (target == null && here && !endpoint.isValid(referenceId.secret())) {
        throw Contract.get()
            .failure(
                function,
                NcclResult.INVALID_USAGE.code(),
                id
                    + " is no longer valid: its ranks have joined or given up, or it was closed, or its"
                    + " process has failed to listen",
                "");
      }
      if (target != null && target.grows() && function.equals(CONNECT)) {
        throw Contract.get()
            .failure(
                function,
                NcclResult.INVALID_USAGE.code(),
                id + " is the id of a grow; new ranks call Backend.join",
                "");
      }
      if (target == null) {
        InitBootstrap opened = new InitBootstrap(endpoint, id, referenceId, function, request);
        endpoint.open(id, opened);
        target = opened;
      }
      return target;
    }
  }

  @Override
  public Bootstrap admit(JoinRequest request, Deadline deadline) {
    int rank = request.rank();
    if (request.size() != size) {
      throw refused(
          "rank " + rank + " expects " + request.size() + " ranks, the ranks before it " + size);
    }
    if (!request.options().equals(options)) {
      throw refused(
          "rank "
              + rank
              + " has other options than the ranks before it: "
              + request.options()
              + ", "
              + options);
    }
    if (remoteCoordinator != null) {
      remoteCoordinator.open(rank, deadline);
    }
    ProcessAddress process = request.process() != null ? request.process() : endpoint.address();
    bootstrap.arrive(new Bootstrap.MembershipRequest(rank, 0, rank, process));
    return bootstrap;
  }

  private NcclException refused(String text) {
    bootstrap.recordRejection(text);
    return Contract.get().failure(function, NcclResult.INVALID_USAGE.code(), text, "");
  }

  @Override
  public void addListener(JoinRequest request, Bootstrap.StateListener listener) {
    bootstrap.addListener(listener);
  }

  /** The connection to the process that created the id. */
  private final class Way implements Bootstrap.Coordinator, Connection.Receiver {
    private final ReferenceId target;
    private volatile Connection connection;
    private volatile String broken;

    Way(ReferenceId target) {
      this.target = target;
    }

    /** Connects for a rank, unless another rank of this process has connected before. */
    synchronized void open(int rank, Deadline deadline) {
      // The bootstrap may have ended since the rank looked up this target.
      bootstrap.checkNotOver(rank);
      if (connection != null) {
        return;
      }
      if (target.maker().address() == null) {
        throw Contract.get()
            .failure(
                function,
                NcclResult.SYSTEM_ERROR.code(),
                "%s does not listen for ranks of other processes: %s is %s there, or %s"
                    .formatted(
                        target.maker(),
                        SocketAddresses.VARIABLE,
                        SocketAddresses.NONE,
                        SocketAddresses.NO_INTERFACE),
                "");
      }
      endpoint.retain(target.secret(), function);
      try {
        Handshake.Opening opening =
            new Handshake.Opening(
                Message.Kind.JOIN, target.secret(), target.maker().process(), 0, out -> {});
        connection = endpoint.connect(target.maker(), opening, this, deadline);
      } catch (ClosedByInterruptException e) {
        endpoint.release(target.secret());
        throw bootstrap.interrupted(rank);
      } catch (IOException e) {
        endpoint.release(target.secret());
        String text = target.maker() + " at " + target.maker().address() + ", which created the id";
        bootstrap.fail(BootstrapFailure.of(text + ", cannot be reached: " + e.getMessage()));
        throw e instanceof SocketTimeoutException
            ? new NcclTimeoutException(function, deadline.timeout(), text + ", did not answer")
            : Contract.get()
                .failure(
                    function,
                    NcclResult.REMOTE_ERROR.code(),
                    text + ", cannot be reached: " + e.getMessage(),
                    "");
      }
    }

    @Override
    public void arrive(int expected, Bootstrap.MembershipRequest request) {
      connection.send(
          Message.of(
              Message.Kind.JOIN,
              out -> {
                out.write(id.toBytes());
                out.writeUTF(function);
                out.writeInt(size);
                out.writeUTF(options);
                request.write(out);
              }));
    }

    @Override
    public void confirm(int expected, int rank) {
      connection.send(Message.of(Message.Kind.CONNECTED, out -> out.writeInt(rank)));
    }

    @Override
    public void giveUp(int expected, BootstrapFailure why) {
      if (connection != null) {
        connection.send(Message.of(Message.Kind.GIVE_UP, why::write));
      }
    }

    @Override
    public void query(int expected) {
      connection.send(Message.of(Message.Kind.BOOTSTRAP_QUERY, out -> {}));
    }

    @Override
    public String departure() {
      return broken;
    }

    @Override
    public void receive(Connection from, Message message) throws IOException {
      DataInput in = message.content();
      switch (message.kind()) {
        case BOOTSTRAP_STATE -> {
          in.readInt();
          bootstrap.applyState(in);
        }
        case REJECTED -> bootstrap.applyRejection(in.readInt(), in.readUTF());
        default -> throw new ProtocolException("it sent a " + message.kind() + " message");
      }
    }

    /** Closes the connection. */
    void close() {
      if (connection != null) {
        connection.close();
        endpoint.release(target.secret());
      }
    }

    @Override
    public void ended(Connection from, String why, boolean protocolViolation) {
      broken =
          target.maker()
              + ", which created the id, ended the connection"
              + (why == null ? "" : ": " + why);
      bootstrap.checkPresent();
    }

    @Override
    public String toString() {
      return target.maker() + ", which created the id,";
    }
  }
}
