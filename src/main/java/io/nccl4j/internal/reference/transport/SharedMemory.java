package io.nccl4j.internal.reference.transport;

import io.nccl4j.NcclResult;
import io.nccl4j.NcclSystemException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Set;

/**
 * Memory that processes of one host share: a file that one makes and the others open, mapped.
 *
 * <p>A mapping belongs to an arena, whose owner closes it. A thread that still reads or writes then
 * gets an {@link IllegalStateException}, never a fault; the other processes keep the memory until
 * they unmap it too.
 */
final class SharedMemory {
  /** Between what different processes write, so that no cache line or pair of lines has both. */
  static final long APART = 128;

  /** A number that another process reads or writes meanwhile. */
  static final VarHandle COUNT = ValueLayout.JAVA_LONG.varHandle().withInvokeExactBehavior();

  /** Where Linux has a file system in memory. */
  static final Path MEMORY = Path.of("/dev/shm");

  private static final FileAttribute<Set<PosixFilePermission>> OWNER_ONLY =
      PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));

  private SharedMemory() {}

  /**
   * Returns where files of so many bytes in all are made: in memory if there is room, else in the
   * temporary directory, which is as fast while the pages are not written back.
   */
  static Path directory(long bytes) {
    try {
      if (Files.isWritable(MEMORY) && Files.getFileStore(MEMORY).getUsableSpace() >= bytes) {
        return MEMORY;
      }
    } catch (IOException e) {
      throw new UncheckedIOException("cannot ask " + MEMORY + " for its room: " + e, e);
    }
    return temporary();
  }

  static Path temporary() {
    return Path.of(System.getProperty("java.io.tmpdir"));
  }

  /**
   * Makes a file for this user alone and maps it; all its bytes are 0.
   *
   * @throws NcclSystemException if it cannot be made, such as where there is no room
   */
  static MemorySegment create(Path path, long bytes, Arena arena) {
    SharedMemoryFiles.sweepOnce();
    try (FileChannel file =
        FileChannel.open(
            path,
            Set.of(
                StandardOpenOption.CREATE_NEW, StandardOpenOption.READ, StandardOpenOption.WRITE),
            OWNER_ONLY)) {
      boolean made = false;
      try {
        fill(file, bytes);
        MemorySegment mapped = file.map(FileChannel.MapMode.READ_WRITE, 0, bytes, arena);
        made = true;
        return mapped;
      } finally {
        if (!made) {
          delete(path);
        }
      }
    } catch (IOException e) {
      throw failed(
          "%d bytes of shared memory cannot be had in %s: %s; make room there, or set java.io.tmpdir"
              .formatted(bytes, path.getParent(), e.getMessage()),
          e);
    }
  }

  /** Takes the memory now: a page that cannot be had later would end the process by a signal. */
  private static void fill(FileChannel file, long bytes) throws IOException {
    ByteBuffer zeros = ByteBuffer.allocate((int) Math.min(bytes, 1 << 16));
    for (long written = 0; written < bytes; ) {
      zeros.clear().limit((int) Math.min(zeros.capacity(), bytes - written));
      written += file.write(zeros);
    }
  }

  /**
   * Maps a file that another process has made, all of it.
   *
   * @throws NcclSystemException if it cannot be opened, as from another host or by another user
   */
  static MemorySegment open(Path path, Arena arena) {
    try (FileChannel file =
        FileChannel.open(
            path, StandardOpenOption.READ, StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS)) {
      return file.map(FileChannel.MapMode.READ_WRITE, 0, file.size(), arena);
    } catch (IOException e) {
      throw failed("the shared memory " + path + " cannot be opened: " + e, e);
    }
  }

  /** Takes the name away, if it is still there; what is mapped stays. */
  static void delete(Path path) {
    try {
      Files.deleteIfExists(path);
    } catch (IOException e) {
      throw failed("the shared memory " + path + " cannot be deleted: " + e, e);
    }
  }

  private static NcclSystemException failed(String text, IOException cause) {
    NcclSystemException failure =
        new NcclSystemException("sharedMemory", NcclResult.SYSTEM_ERROR.code(), text, "");
    failure.initCause(cause);
    return failure;
  }

  /** Returns the number rounded up to whole cache lines. */
  static long lines(long bytes) {
    return (bytes + 63) & -64;
  }
}
