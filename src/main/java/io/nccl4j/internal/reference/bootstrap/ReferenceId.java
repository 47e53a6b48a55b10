package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.UniqueId;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * What the 128 bytes of the reference backend's unique ids say: where the process is that has made
 * the id, and the secret that lets ranks in there.
 *
 * @param maker the process; its address is null if it takes no ranks of others
 */
public record ReferenceId(ProcessAddress maker, Secret secret) {
  private static final byte[] PREFIX = "nccl4j-reference".getBytes(StandardCharsets.US_ASCII);
  private static final int LAYOUT = 1;
  private static final int MOST_ADDRESS_BYTES = 16;
  private static final int MOST_NAME_BYTES = 30;

  /** Returns whether the reference backend made an id. */
  public static boolean madeHere(UniqueId id) {
    return Arrays.equals(PREFIX, Arrays.copyOf(id.toBytes(), PREFIX.length));
  }

  /**
   * Reads an id that the reference backend made.
   *
   * @throws IllegalArgumentException if it is damaged
   */
  public static ReferenceId of(UniqueId id) {
    try {
      return read(new DataInputStream(new ByteArrayInputStream(id.toBytes())));
    } catch (IOException e) {
      throw new IllegalArgumentException(
          "id is " + id + ", which is damaged: " + e.getMessage(), e);
    }
  }

  private static ReferenceId read(DataInputStream in) throws IOException {
    in.skipNBytes(PREFIX.length);
    int layout = in.readUnsignedByte();
    if (layout != LAYOUT) {
      throw new IOException("its layout is " + layout + "; this release reads " + LAYOUT);
    }
    Secret secret = Secret.read(in);
    java.util.UUID process = ProcessAddress.readUuid(in);
    java.util.UUID host = ProcessAddress.readUuid(in);
    long pid = in.readLong();
    int length = in.readUnsignedByte();
    byte[] address = in.readNBytes(MOST_ADDRESS_BYTES);
    int port = in.readUnsignedShort();
    byte[] name = new byte[in.readUnsignedByte()];
    in.readFully(name);
    InetSocketAddress listens =
        port == 0
            ? null
            : new InetSocketAddress(InetAddress.getByAddress(Arrays.copyOf(address, length)), port);
    return new ReferenceId(
        new ProcessAddress(process, host, listens, pid, new String(name, StandardCharsets.UTF_8)),
        secret);
  }

  public UniqueId toUniqueId() {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream(UniqueId.BYTES);
    DataOutputStream out = new DataOutputStream(bytes);
    InetSocketAddress listens = maker.address();
    byte[] address = listens == null ? new byte[0] : listens.getAddress().getAddress();
    byte[] name = maker.hostName().getBytes(StandardCharsets.UTF_8);
    try {
      out.write(PREFIX);
      out.writeByte(LAYOUT);
      secret.write(out);
      ProcessAddress.writeUuid(out, maker.process());
      ProcessAddress.writeUuid(out, maker.host());
      out.writeLong(maker.pid());
      out.writeByte(address.length);
      out.write(Arrays.copyOf(address, MOST_ADDRESS_BYTES));
      out.writeShort(listens == null ? 0 : listens.getPort());
      int shown = Math.min(name.length, MOST_NAME_BYTES);
      out.writeByte(shown);
      out.write(name, 0, shown);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return UniqueId.of(Arrays.copyOf(bytes.toByteArray(), UniqueId.BYTES));
  }
}
