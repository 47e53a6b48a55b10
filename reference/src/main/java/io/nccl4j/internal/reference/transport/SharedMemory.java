package io.nccl4j.internal.reference.transport;

import io.nccl4j.NcclException;
import io.nccl4j.NcclResult;
import io.nccl4j.NcclSystemException;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.spi.Contract;
import java.io.IOException;
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
 * Memory that processes of one host share: a mapped file that one process creates and the others
 * open.
 *
 * <p>A mapping belongs to an arena, which its owner closes. A thread that then accesses the mapping
 * gets an {@link IllegalStateException}, never a segmentation fault; the other processes keep the
 * memory until they unmap it.
 */
final class SharedMemory {
  /** The distance between data of different writers, so that no pair of cache lines has both. */
  static final long LINE_PAIR_BYTES = 128;

  /** Accesses a counter that another process reads or writes concurrently. */
  static final VarHandle COUNT = ValueLayout.JAVA_LONG.varHandle().withInvokeExactBehavior();

  /** The in-memory file system of Linux. */
  static final Path MEMORY = Path.of("/dev/shm");

  private static final FileAttribute<Set<PosixFilePermission>> OWNER_ONLY =
      PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));

  private SharedMemory() {}

  /**
   * Returns the directory for files of the given total size: {@link #MEMORY} if it has the space,
   * else the temporary directory, which is as fast while the pages are not written back. The space
   * is unknown where the mount table lacks the file system, as in a chroot.
   */
  static Path directory(long bytes) {
    try {
      if (Files.isWritable(MEMORY) && Files.getFileStore(MEMORY).getUsableSpace() >= bytes) {
        return MEMORY;
      }
    } catch (IOException e) {
      Loggers.of(SharedMemory.class).debug("cannot query the free space of {}: {}", MEMORY, e);
    }
    return temporary();
  }

  static Path temporary() {
    return Arguments.path(System.getProperty("java.io.tmpdir"), "java.io.tmpdir");
  }

  /**
   * Creates a file that only this user can access, and maps it; all its bytes are 0.
   *
   * @throws NcclSystemException if it cannot be created, for example for lack of space
   */
  static MemorySegment create(Path path, long bytes, Arena arena) {
    SharedMemoryFiles.sweepOnce();
    try (FileChannel file =
        FileChannel.open(
            path,
            Set.of(
                StandardOpenOption.CREATE_NEW, StandardOpenOption.READ, StandardOpenOption.WRITE),
            OWNER_ONLY)) {
      boolean complete = false;
      try {
        fill(file, bytes);
        MemorySegment mapped = file.map(FileChannel.MapMode.READ_WRITE, 0, bytes, arena);
        complete = true;
        return mapped;
      } finally {
        if (!complete) {
          delete(path);
        }
      }
    } catch (IOException e) {
      throw failed(
          ("%d bytes of shared memory cannot be allocated in %s: %s; free space there, or set"
                  + " java.io.tmpdir")
              .formatted(bytes, path.getParent(), e.getMessage()),
          e);
    }
  }

  /** Allocates all pages now: a page that is unavailable later would kill the process (SIGBUS). */
  private static void fill(FileChannel file, long bytes) throws IOException {
    ByteBuffer zeros = ByteBuffer.allocate((int) Math.min(bytes, 1 << 16));
    for (long written = 0; written < bytes; ) {
      zeros.clear().limit((int) Math.min(zeros.capacity(), bytes - written));
      written += file.write(zeros);
    }
  }

  /**
   * Maps all of a file that another process has created.
   *
   * @throws NcclSystemException if it cannot be opened, for example by another user
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

  /** Unlinks the file if it still exists; mappings stay valid. */
  static void delete(Path path) {
    try {
      Files.deleteIfExists(path);
    } catch (IOException e) {
      throw failed("the shared memory " + path + " cannot be deleted: " + e, e);
    }
  }

  static NcclException failed(String text, Exception cause) {
    NcclException failure =
        Contract.get().failure("sharedMemory", NcclResult.SYSTEM_ERROR.code(), text, "");
    failure.initCause(cause);
    return failure;
  }

  /** Returns the size rounded up to whole cache lines. */
  static long lines(long bytes) {
    return (bytes + 63) & -64;
  }
}
