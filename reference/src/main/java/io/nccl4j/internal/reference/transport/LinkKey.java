package io.nccl4j.internal.reference.transport;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.net.ProtocolException;

/** Identifies one link of a communicator. */
public record LinkKey(Route route, int channel, int from, int to) {
  public static LinkKey read(DataInput in) throws IOException {
    int number = in.readUnsignedByte();
    Route route = Route.of(number);
    if (route == null) {
      throw new ProtocolException("there is no route " + number);
    }
    return new LinkKey(route, in.readInt(), in.readInt(), in.readInt());
  }

  @SuppressWarnings("EnumOrdinal") // Both ends are of one version of the protocol.
  public void write(DataOutput out) throws IOException {
    out.writeByte(route.ordinal());
    out.writeInt(channel);
    out.writeInt(from);
    out.writeInt(to);
  }

  @Override
  public String toString() {
    return "link " + route + " " + channel + " from rank " + from + " to rank " + to;
  }
}
