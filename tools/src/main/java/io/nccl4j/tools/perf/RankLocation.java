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
 * Where a rank is.
 *
 * @param pid its process
 * @param host its host's name
 * @param device its device's number in the process
 * @param busId domain, bus and device, as nccl-tests prints them: without the function
 * @param name what its device is called
 * @param memoryBytes how much memory the device has
 * @param arguments stands for the command line of its process
 */
record RankLocation(
    long pid, String host, int device, String busId, String name, long memoryBytes, int arguments) {
  /** How many bytes any place takes as bytes: names are cut. */
  static final int BYTES = 512;

  private static final int LONGEST_NAME = 64;

  /** Returns the place of a rank of this process. */
  static RankLocation of(Device device, int arguments) {
    return new RankLocation(
        ProcessHandle.current().pid(),
        cut(Host.name()),
        device.index(),
        cut(busId(device)),
        cut(device.name()),
        device.memoryBytes(),
        arguments);
  }

  private static String cut(String name) {
    return name.length() <= LONGEST_NAME ? name : name.substring(0, LONGEST_NAME);
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
