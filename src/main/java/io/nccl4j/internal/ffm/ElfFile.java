package io.nccl4j.internal.ffm;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Checks a library file before the dynamic loader opens it: the loader waits for the writer of a
 * pipe, and a file that was cut off, as by a full disk, makes it crash with SIGBUS.
 */
final class ElfFile {
  private static final int MAGIC = 0x464C457F;
  private static final byte CLASS_64 = 2;
  private static final int LOADED = 1; // PT_LOAD
  private static final int HEADER_BYTES = 64;
  private static final int PROGRAM_HEADER_BYTES = 56;
  private static final int SECTION_HEADER_BYTES = 64;
  private static final int X86_64 = 62;
  private static final int AARCH64 = 183;

  private ElfFile() {}

  /**
   * Returns why the loader must not open a file, or null. A file that does not exist or may not be
   * read is left to the loader, which gives the system's reason.
   */
  static String fault(Path file) {
    if (!Files.isReadable(file)) {
      return null;
    }
    if (!Files.isRegularFile(file)) {
      return "is not a regular file";
    }
    try (FileChannel channel = FileChannel.open(file)) {
      long size = channel.size();
      ByteBuffer header = read(channel, 0, HEADER_BYTES);
      if (header.limit() < HEADER_BYTES || header.getInt(0) != MAGIC) {
        return "is not a shared library (not an ELF file)";
      }
      if (header.get(4) != CLASS_64) {
        return "is a 32-bit library; Java needs a 64-bit one";
      }
      int machine = header.getShort(0x12);
      int own =
          switch (System.getProperty("os.arch")) {
            case "amd64" -> X86_64;
            case "aarch64" -> AARCH64;
            default -> machine;
          };
      if (machine != own) {
        return "is for another processor (ELF machine " + machine + "); this one needs " + own;
      }
      long end = end(channel, header);
      return end <= size ? null : "is truncated: it has " + size + " of at least " + end + " bytes";
    } catch (IOException e) {
      return "cannot be read: " + e;
    }
  }

  /** Returns where the last part of the file ends that its headers name. */
  private static long end(FileChannel channel, ByteBuffer header) throws IOException {
    long programHeaders = header.getLong(0x20);
    int programs = Short.toUnsignedInt(header.getShort(0x38));
    long sectionHeaders = header.getLong(0x28);
    long end =
        end(
            sectionHeaders,
            (long) SECTION_HEADER_BYTES * Short.toUnsignedInt(header.getShort(0x3C)));
    end = Math.max(end, end(programHeaders, (long) programs * PROGRAM_HEADER_BYTES));
    ByteBuffer table = read(channel, programHeaders, programs * PROGRAM_HEADER_BYTES);
    for (int at = 0; at + PROGRAM_HEADER_BYTES <= table.limit(); at += PROGRAM_HEADER_BYTES) {
      if (table.getInt(at) == LOADED) {
        end = Math.max(end, end(table.getLong(at + 0x08), table.getLong(at + 0x20)));
      }
    }
    return end;
  }

  private static long end(long offset, long bytes) throws IOException {
    if (offset < 0 || bytes < 0 || offset + bytes < 0) {
      throw new IOException("its header is damaged");
    }
    return offset + bytes;
  }

  /** Reads a part of the file; the buffer's limit is smaller than its capacity at the end. */
  private static ByteBuffer read(FileChannel channel, long position, int bytes) throws IOException {
    ByteBuffer buffer = ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
    while (buffer.hasRemaining() && channel.read(buffer, position + buffer.position()) >= 0) {}
    return buffer.flip();
  }
}
