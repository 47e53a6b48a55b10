package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.UniqueId;
import io.nccl4j.spi.BackendProvider;
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
import java.util.UUID;

/**
 * The content of a unique id of the reference backend (128 bytes): the process that created the id,
 * and the secret with which ranks join there.
 *
 * @param maker the process; its address is null if it accepts only ranks of its own
 */
public record ReferenceId(ProcessAddress maker, Secret secret) {
  private static final byte[] PREFIX =
      BackendProvider.ID_PREFIX.getBytes(StandardCharsets.US_ASCII);
  private static final int LAYOUT = 1;
  private static final int MAX_ADDRESS_BYTES = 16;
  private static final int MAX_NAME_BYTES = 30;

  /**
   * Reads an id of the reference backend.
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
    UUID process = ProcessAddress.readUuid(in);
    UUID host = ProcessAddress.readUuid(in);
    long pid = in.readLong();
    int length = in.readUnsignedByte();
    byte[] address = in.readNBytes(MAX_ADDRESS_BYTES);
    int port = in.readUnsignedShort();
    byte[] name = new byte[in.readUnsignedByte()];
    in.readFully(name);
    InetSocketAddress socketAddress =
        port == 0
            ? null
            : new InetSocketAddress(InetAddress.getByAddress(Arrays.copyOf(address, length)), port);
    return new ReferenceId(
        new ProcessAddress(
            process, host, socketAddress, pid, new String(name, StandardCharsets.UTF_8)),
        secret);
  }

  public UniqueId toUniqueId() {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream(UniqueId.BYTES);
    DataOutputStream out = new DataOutputStream(bytes);
    InetSocketAddress socketAddress = maker.address();
    byte[] address = socketAddress == null ? new byte[0] : socketAddress.getAddress().getAddress();
    byte[] name = maker.hostName().getBytes(StandardCharsets.UTF_8);
    try {
      out.write(PREFIX);
      out.writeByte(LAYOUT);
      secret.write(out);
      ProcessAddress.writeUuid(out, maker.process());
      ProcessAddress.writeUuid(out, maker.host());
      out.writeLong(maker.pid());
      out.writeByte(address.length);
      out.write(Arrays.copyOf(address, MAX_ADDRESS_BYTES));
      out.writeShort(socketAddress == null ? 0 : socketAddress.getPort());
      int nameBytes = Math.min(name.length, MAX_NAME_BYTES);
      out.writeByte(nameBytes);
      out.write(name, 0, nameBytes);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return UniqueId.of(Arrays.copyOf(bytes.toByteArray(), UniqueId.BYTES));
  }
}
