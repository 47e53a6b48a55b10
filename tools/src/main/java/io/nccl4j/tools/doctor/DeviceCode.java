package io.nccl4j.tools.doctor;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.util.Set;
import java.util.TreeSet;

/**
 * Reads the architectures of the device code in a library. NVIDIA does not document the container,
 * the fat binary. The fields read here are those that NVIDIA's tools have written since CUDA 8, and
 * their values agree with NCCL's makefile. If the container looks different, nothing is found.
 */
final class DeviceCode {
  private static final int MAGIC = 0xBA55ED50;
  private static final int PTX = 1;
  private static final int MACHINE_CODE = 2;
  private static final long HEADER_BYTES = 16;
  private static final long ENTRY_BYTES = 64;
  private static final long ARCHITECTURE_OFFSET = 28;

  private static final ValueLayout.OfShort SHORT =
      ValueLayout.JAVA_SHORT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfInt INT =
      ValueLayout.JAVA_INT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfLong LONG =
      ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  private DeviceCode() {}

  /** Returns the architectures of the code in a section of fat binaries. */
  static Set<Architecture> architectures(MemorySegment section) {
    Set<Architecture> found = new TreeSet<>();
    long at = 0;
    while (at + HEADER_BYTES <= section.byteSize()) {
      if (section.get(INT, at) != MAGIC) {
        at += Long.BYTES;
        continue;
      }
      long first = at + section.get(SHORT, at + 6);
      long end = first + section.get(LONG, at + 8);
      if (end <= at || end > section.byteSize()) {
        return found;
      }
      entries(section.asSlice(first, end - first), found);
      at = end;
    }
    return found;
  }

  private static void entries(MemorySegment entries, Set<Architecture> found) {
    long at = 0;
    while (at + ENTRY_BYTES <= entries.byteSize()) {
      int kind = entries.get(SHORT, at);
      long bytes = entries.get(INT, at + 4) + entries.get(LONG, at + 8);
      if (bytes < ENTRY_BYTES) {
        return;
      }
      if (kind == PTX || kind == MACHINE_CODE) {
        found.add(new Architecture(entries.get(INT, at + ARCHITECTURE_OFFSET), kind == PTX));
      }
      at += bytes;
    }
  }
}
