package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.NcclException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.util.RankSets;
import java.io.DataInput;
import java.io.IOException;
import java.net.ProtocolException;
import java.util.BitSet;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** A remote process whose ranks join a bootstrap coordinated here, and its connection. */
final class JoiningProcess implements Connection.Receiver, Bootstrap.StateListener {
  private final ProcessEndpoint endpoint;
  private final Connection connection;
  private final Secret secret;
  private final Set<Integer> ranks = ConcurrentHashMap.newKeySet();
  private BootstrapTarget target;
  private Bootstrap bootstrap;
  private ProcessAddress address;
  private volatile long heardAt = System.nanoTime();

  /**
   * Wraps a connection.
   *
   * @param secret the secret that the other process has proved to know
   */
  JoiningProcess(ProcessEndpoint endpoint, Connection connection, Secret secret) {
    this.endpoint = endpoint;
    this.connection = connection;
    this.secret = secret;
  }

  @Override
  public void receive(Connection from, Message message) throws IOException {
    heardAt = System.nanoTime();
    DataInput in = message.content();
    switch (message.kind()) {
      case JOIN -> join(in);
      case CONNECTED -> {
        int rank = in.readInt();
        if (!ranks.contains(rank)) {
          throw new ProtocolException("it reports that rank " + rank + " has connected");
        }
        bootstrap.confirm(rank);
      }
      case GIVE_UP -> {
        BootstrapFailure why = BootstrapFailure.read(in);
        if (bootstrap != null) {
          bootstrap.giveUp(why);
        }
      }
      case BOOTSTRAP_QUERY -> {
        if (bootstrap != null) {
          bootstrap.report(this);
        }
      }
      default -> throw new ProtocolException("it sent a " + message.kind() + " message");
    }
  }

  private void join(DataInput in) throws IOException {
    byte[] bytes = new byte[UniqueId.BYTES];
    in.readFully(bytes);
    UniqueId id = check(bytes);
    String function = in.readUTF();
    int size = in.readInt();
    String options = in.readUTF();
    Bootstrap.MembershipRequest request = Bootstrap.MembershipRequest.read(in);
    if (size > RankMap.MAX_RANKS || request.rank() < 0 || request.rank() >= size) {
      throw new ProtocolException("its request is for rank " + request.rank() + " of " + size);
    }
    boolean joinedBefore = !ranks.add(request.rank());
    address = request.process();
    try {
      BootstrapTarget.JoinRequest joining =
          new BootstrapTarget.JoinRequest(size, request.rank(), options, request.process());
      if (target == null) {
        target = InitBootstrap.of(endpoint, id, function, joining);
        target.addListener(joining, this);
      }
      bootstrap = target.admit(joining, null);
    } catch (NcclException e) {
      onRejected(request.rank(), e.text());
      // If a rank joins twice, the end of the connection is still the loss of the first one.
      if (joinedBefore) {
        ranks.add(request.rank());
      }
    }
  }

  private UniqueId check(byte[] bytes) throws ProtocolException {
    try {
      UniqueId id = UniqueId.of(bytes);
      ReferenceId referenceId = ReferenceId.of(id);
      if (referenceId.secret().equals(secret)
          && referenceId.maker().process().equals(endpoint.process())) {
        return id;
      }
    } catch (IllegalArgumentException e) {
      throw new ProtocolException("its id is invalid: " + e.getMessage());
    }
    throw new ProtocolException("its id is not one that this process has created");
  }

  @Override
  public void onState(int expected, Message.Body state) {
    connection.send(
        Message.of(
            Message.Kind.BOOTSTRAP_STATE,
            out -> {
              out.writeInt(expected);
              state.write(out);
            }));
  }

  @Override
  public void onRejected(int rank, String text) {
    if (ranks.remove(rank)) {
      connection.send(
          Message.of(
              Message.Kind.REJECTED,
              out -> {
                out.writeInt(rank);
                Message.writeReason(out, text);
              }));
    }
  }

  @Override
  public void addSilent(BitSet silent) {
    if (System.nanoTime() - heardAt > Bootstrap.MAX_QUERY_PAUSE_NANOS) {
      ranks.forEach(silent::set);
    }
  }

  @Override
  public void ended(Connection from, String why, boolean protocolViolation) {
    if (bootstrap != null && !ranks.isEmpty()) {
      BitSet lost = RankSets.of(ranks);
      bootstrap.giveUp(
          BootstrapFailure.of(
              RankSets.describe(lost)
                  + " ("
                  + address
                  + ") ended the connection while others were waiting"
                  + (why == null ? "" : ": " + why),
              lost));
    }
  }
}
