package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.internal.auth.SessionKeys;
import java.io.IOException;
import java.net.ProtocolException;
import java.nio.channels.SocketChannel;
import java.util.concurrent.TimeUnit;

/**
 * A connection that this process has accepted and that has not reached what it wants: it has said
 * nothing yet, or names a secret that is not known here yet, or a world that is not here yet. Only
 * the thread of the {@link EventLoop} uses it.
 */
final class PendingConnection implements Connection.Receiver {
  /** How long a connection waits for its secret to be known here. */
  private static final long STRANGE_NANOS = TimeUnit.SECONDS.toNanos(2);

  /** How long a connection may take to say what it is for. */
  private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(10);

  private static final String STRANGE =
      "it does not know the secret of any communicator of this process";

  private final long since = System.nanoTime();
  private final byte[] greeting = Handshake.greeting();
  private final ListeningEndpoint endpoint;
  private final EventLoop loop;
  private final Connection connection;
  private Handshake.Claim claim;
  // Null until the other side has proved that it knows it.
  private Secret secret;
  private SessionKeys keys;

  PendingConnection(ListeningEndpoint endpoint, EventLoop loop, SocketChannel channel)
      throws IOException {
    this.endpoint = endpoint;
    this.loop = loop;
    this.connection = Connection.accepted(channel, this, greeting);
  }

  Connection connection() {
    return connection;
  }

  @Override
  public void receive(Connection from, Message message) throws IOException {
    claim = Handshake.Claim.read(message);
    if (!claim.process().equals(endpoint.process())) {
      throw new ProtocolException("it wants to reach another process");
    }
    if (!admitted()) {
      connection.pause();
    }
  }

  /** Goes where it wants to go, if it can by now. */
  void proceed() {
    try {
      admitted();
    } catch (IOException e) {
      connection.refuse(e.getMessage());
    } catch (RuntimeException e) {
      connection.refuse("what it sent could not be dealt with: " + e);
    }
  }

  private boolean admitted() throws IOException {
    if (claim == null || (secret == null && !proved())) {
      return false;
    }
    switch (claim.kind()) {
      case JOIN -> {
        secure();
        connection.setReceiver(endpoint.joiningProcess(connection, secret));
      }
      default -> {
        return admittedToCommunicator();
      }
    }
    return true;
  }

  private boolean proved() throws IOException {
    Secret named = endpoint.secretNamed(claim.secretName());
    if (named == null) {
      if (claim.kind() == Message.Kind.JOIN) {
        throw new ProtocolException(STRANGE);
      }
      return false;
    }
    keys = claim.prove(named, greeting);
    secret = named;
    loop.park(this);
    return true;
  }

  private boolean admittedToCommunicator() throws IOException {
    CommunicatorEndpoint communicator = endpoint.communicator(claim.communicator());
    if (communicator == null) {
      return false;
    }
    if (!communicator.secret().equals(secret)) {
      throw new ProtocolException(STRANGE);
    }
    if (claim.kind() == Message.Kind.CONTROL) {
      secure();
      communicator.admitControl(connection, claim.detail());
    } else {
      loop.forget(this);
      communicator.admitLink(connection, claim.detail());
    }
    return true;
  }

  private void secure() {
    loop.forget(this);
    connection.secure(keys.toConnector(), keys.toAcceptor());
    connection.resume();
  }

  /** Returns why to wait no longer for what this wants, or null. */
  String tooLate(long now) {
    if (claim == null) {
      return now - since < PATIENCE_NANOS ? null : "it has not said what it wants";
    }
    // Ranks here that have not got ready yet fail by their own deadline, not by ours.
    boolean known = secret != null && endpoint.knows(secret);
    return known || now - since < STRANGE_NANOS ? null : STRANGE;
  }

  @Override
  public void ended(Connection from, String why, boolean nonsense) {
    loop.forget(this);
    loop.noteRefusal(from, why == null ? "it said nothing" : why);
  }
}
