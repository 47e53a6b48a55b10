package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.NcclException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.util.RankSets;
import java.io.DataInput;
import java.io.IOException;
import java.net.ProtocolException;
import java.util.BitSet;

/** A process that has ranks who come by an id that this process has made, and its connection. */
final class JoiningProcess implements Connection.Receiver, Bootstrap.StateListener {
  private final ProcessEndpoint endpoint;
  private final Connection connection;
  private final Secret secret;
  private final BitSet ranks = new BitSet();
  private BootstrapTarget target;
  private Bootstrap bootstrap;
  private ProcessAddress address;

  /**
   * Takes a connection.
   *
   * @param secret what the other process has proved to know
   */
  JoiningProcess(ProcessEndpoint site, Connection connection, Secret secret) {
    this.endpoint = site;
    this.connection = connection;
    this.secret = secret;
  }

  @Override
  public void receive(Connection from, Message message) throws IOException {
    DataInput in = message.content();
    switch (message.kind()) {
      case JOIN -> join(in);
      case CONNECTED -> {
        int rank = in.readInt();
        if (rank < 0 || !ranks.get(rank)) {
          throw new ProtocolException("it says that rank " + rank + " has connected");
        }
        bootstrap.confirm(rank);
      }
      case GIVE_UP -> {
        String text = in.readUTF();
        BitSet missing = Message.readBits(in);
        if (bootstrap != null) {
          bootstrap.giveUp(text, missing);
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
    if (size > RankMap.MOST_RANKS || request.rank() < 0 || request.rank() >= size) {
      throw new ProtocolException("it brings rank " + request.rank() + " of " + size);
    }
    boolean again = ranks.get(request.rank());
    ranks.set(request.rank());
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
      // Where a rank comes again, the end of the connection is still the loss of the first one.
      ranks.set(request.rank(), again);
    }
  }

  private UniqueId check(byte[] bytes) throws ProtocolException {
    try {
      UniqueId id = UniqueId.of(bytes);
      ReferenceId meaning = ReferenceId.of(id);
      if (meaning.secret().equals(secret) && meaning.maker().process().equals(endpoint.process())) {
        return id;
      }
    } catch (IllegalArgumentException e) {
      throw new ProtocolException("it brings no id: " + e.getMessage());
    }
    throw new ProtocolException("it brings an id that this process has not made");
  }

  @Override
  public void onState(int expected, Message.Body state) {
    connection.send(
        Message.of(
            Message.Kind.MEETING,
            out -> {
              out.writeInt(expected);
              state.write(out);
            }));
  }

  @Override
  public void onRejected(int rank, String text) {
    if (ranks.get(rank)) {
      ranks.clear(rank);
      connection.send(
          Message.of(
              Message.Kind.REFUSED,
              out -> {
                out.writeInt(rank);
                Message.writeReason(out, text);
              }));
    }
  }

  @Override
  public void ended(Connection from, String why, boolean nonsense) {
    if (bootstrap != null && !ranks.isEmpty()) {
      bootstrap.giveUp(
          RankSets.describe(ranks)
              + " ("
              + address
              + ") ended the connection while others were waiting"
              + (why == null ? "" : ": " + why),
          null);
    }
  }
}
