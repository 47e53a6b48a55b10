package io.nccl4j.internal.reference.bootstrap;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.UUID;

/**
 * One process as the others see it.
 *
 * @param process a number that no other process has
 * @param host the same for processes that can share memory, and only for those
 * @param address where it listens; null if it does not
 * @param pid its number on its host
 * @param hostName its host, for messages
 */
public record ProcessAddress(
    UUID process, UUID host, InetSocketAddress address, long pid, String hostName) {
  static ProcessAddress read(DataInput in) throws IOException {
    UUID process = readUuid(in);
    UUID host = readUuid(in);
    byte[] address = new byte[in.readUnsignedByte()];
    in.readFully(address);
    int port = in.readUnsignedShort();
    return new ProcessAddress(
        process,
        host,
        address.length == 0 ? null : new InetSocketAddress(InetAddress.getByAddress(address), port),
        in.readLong(),
        in.readUTF());
  }

  void write(DataOutput out) throws IOException {
    writeUuid(out, process);
    writeUuid(out, host);
    byte[] bytes = address == null ? new byte[0] : address.getAddress().getAddress();
    out.writeByte(bytes.length);
    out.write(bytes);
    out.writeShort(address == null ? 0 : address.getPort());
    out.writeLong(pid);
    out.writeUTF(hostName);
  }

  public static UUID readUuid(DataInput in) throws IOException {
    return new UUID(in.readLong(), in.readLong());
  }

  public static void writeUuid(DataOutput out, UUID id) throws IOException {
    out.writeLong(id.getMostSignificantBits());
    out.writeLong(id.getLeastSignificantBits());
  }

  @Override
  public String toString() {
    return "process " + pid + " on " + hostName;
  }
}
