package io.nccl4j.tools.perf;

import io.nccl4j.Device;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.Locale;

/**
 * The process, host and device of a rank.
 *
 * @param pid the process id
 * @param host the host's name
 * @param device the device's number in the process
 * @param busId PCI domain, bus and device, without the function, as nccl-tests prints them
 * @param name the device's name
 * @param memoryBytes the device's memory in bytes
 * @param arguments a hash of the process's arguments
 */
record RankLocation(
    long pid, String host, int device, String busId, String name, long memoryBytes, int arguments) {
  /** The encoded size; names are truncated to fit. */
  static final int BYTES = 512;

  private static final int MAX_NAME = 64;

  /** Returns the location of a rank of this process. */
  static RankLocation of(Device device, int arguments) {
    return new RankLocation(
        ProcessHandle.current().pid(),
        truncated(Host.name()),
        device.index(),
        truncated(busId(device)),
        truncated(device.name()),
        device.memoryBytes(),
        arguments);
  }

  private static String truncated(String name) {
    return name.length() <= MAX_NAME ? name : name.substring(0, MAX_NAME);
  }

  private static String busId(Device device) {
    String id = device.pciBusId().toLowerCase(Locale.ROOT);
    int function = id.lastIndexOf('.');
    return id.isEmpty() ? "0000:00:00" : function < 0 ? id : id.substring(0, function);
  }

  byte[] toBytes() {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (DataOutputStream out = new DataOutputStream(bytes)) {
      out.writeLong(pid);
      out.writeUTF(host);
      out.writeInt(device);
      out.writeUTF(busId);
      out.writeUTF(name);
      out.writeLong(memoryBytes);
      out.writeInt(arguments);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return Arrays.copyOf(bytes.toByteArray(), BYTES);
  }

  static RankLocation ofBytes(byte[] bytes) {
    try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes))) {
      return new RankLocation(
          in.readLong(),
          in.readUTF(),
          in.readInt(),
          in.readUTF(),
          in.readUTF(),
          in.readLong(),
          in.readInt());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
