package io.nccl4j.internal.reference.bootstrap;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.UUID;

/**
 * The identity and address of a process.
 *
 * @param process the unique id of the process
 * @param host the id of its host; equal for processes that can share memory, and only for those
 * @param address the socket address at which it listens; null if it does not listen
 * @param pid its process id on its host
 * @param hostName the name of its host, for messages
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
