package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.internal.auth.SessionKeys;
import java.io.IOException;
import java.net.ProtocolException;
import java.nio.channels.SocketChannel;
import java.util.concurrent.TimeUnit;

/**
 * An accepted connection that has not been admitted: its claim has not been received, or names a
 * secret or a communicator that is not known here yet. Only the thread of the {@link EventLoop}
 * uses it.
 */
final class PendingConnection implements Connection.Receiver {
  /** How long a connection may wait until its secret is known here. */
  private static final long UNKNOWN_SECRET_NANOS = TimeUnit.SECONDS.toNanos(2);

  /** How long a connection may take to send its claim. */
  private static final long CLAIM_NANOS = TimeUnit.SECONDS.toNanos(10);

  private static final String UNKNOWN_SECRET =
      "it does not know the secret of any communicator of this process";

  private final long since = System.nanoTime();
  private final byte[] greeting = Handshake.greeting();
  private final ListeningEndpoint endpoint;
  private final EventLoop loop;
  private final Connection connection;
  private Handshake.Claim claim;
  // Null until the other side has proved that it knows the secret.
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

  /** Admits the connection if that is possible by now. */
  void proceed() {
    try {
      admitted();
    } catch (IOException e) {
      connection.refuse(e.getMessage());
    } catch (RuntimeException e) {
      connection.refuse("one of its messages could not be processed: " + e);
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
        throw new ProtocolException(UNKNOWN_SECRET);
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
      throw new ProtocolException(UNKNOWN_SECRET);
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

  /** Returns why this connection is to be closed now, or null. */
  String expiryReason(long now) {
    if (claim == null) {
      return now - since < CLAIM_NANOS ? null : "it has not sent its claim in time";
    }
    // Ranks here that are not ready yet fail by their own deadline, not by this one.
    boolean known = secret != null && endpoint.knows(secret);
    return known || now - since < UNKNOWN_SECRET_NANOS ? null : UNKNOWN_SECRET;
  }

  @Override
  public void ended(Connection from, String why, boolean protocolViolation) {
    loop.forget(this);
    loop.logRefusal(from, why == null ? "it closed the connection before its claim" : why);
  }
}
