package io.nccl4j.internal.rendezvous;

import io.nccl4j.internal.util.Loggers;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.FileChannel;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.logging.log4j.Logger;

/**
 * A store in a directory, with a file for each value. A file is written under a temporary name,
 * synced, and renamed, so that a reader sees all of it or nothing. What is not a short regular file
 * counts as absent until its owner replaces it.
 */
public final class FileStore implements Store {
  private static final Logger LOG = Loggers.of(FileStore.class);

  private static final FileAttribute<Set<PosixFilePermission>> OWNER_ONLY =
      PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));

  private final Path directory;
  private final Map<Path, String> problems = new TreeMap<>();

  public FileStore(Path directory) {
    this.directory = directory;
  }

  @Override
  public void set(String key, byte[] value) throws IOException {
    Path target = directory.resolve(key);
    Path temporary = directory.resolve(key + "." + Token.random().toHex() + ".tmp");
    try {
      try (FileChannel channel =
          FileChannel.open(
              temporary,
              Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE),
              attributes())) {
        ByteBuffer bytes = ByteBuffer.wrap(value);
        while (bytes.hasRemaining()) {
          channel.write(bytes);
        }
        channel.force(true);
      }
      Files.move(temporary, target, StandardCopyOption.ATOMIC_MOVE);
    } catch (ClosedByInterruptException e) {
      checkLate(e);
      set(key, value);
    } finally {
      Files.deleteIfExists(temporary);
    }
  }

  private FileAttribute<?>[] attributes() {
    boolean posix = directory.getFileSystem().supportedFileAttributeViews().contains("posix");
    return posix ? new FileAttribute<?>[] {OWNER_ONLY} : new FileAttribute<?>[0];
  }

  @Override
  public byte[] get(String key) throws IOException {
    Path file = directory.resolve(key);
    try {
      // Checked first, because opening a pipe would block until its other end is opened.
      BasicFileAttributes found =
          Files.readAttributes(file, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
      if (found.isRegularFile() && found.size() <= MAX_VALUE_BYTES) {
        problems.remove(file);
        return read(file);
      }
      note(file, found.isRegularFile() ? "is too long" : "is not a regular file");
    } catch (NoSuchFileException e) {
      problems.remove(file);
    } catch (ClosedByInterruptException e) {
      checkLate(e);
      return get(key);
    } catch (IOException e) {
      // For example a file of another user, or a file of NFS that has just been replaced.
      note(file, "could not be read: " + e);
    }
    return new byte[0];
  }

  /**
   * Throws, unless a file was closed by the rest of an interrupt that has ended an earlier wait: a
   * thread sets the status of another first, and closes its file afterwards.
   */
  private static void checkLate(ClosedByInterruptException closed)
      throws ClosedByInterruptException {
    if (Thread.currentThread().isInterrupted()) {
      throw closed;
    }
  }

  private void note(Path file, String defect) {
    if (problems.put(file, defect) == null) {
      LOG.warn("{} {}; waiting for its owner to replace it", file, defect);
    }
  }

  private static byte[] read(Path file) throws IOException {
    ByteBuffer bytes = ByteBuffer.allocate(MAX_VALUE_BYTES);
    try (SeekableByteChannel channel =
        Files.newByteChannel(file, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS)) {
      while (bytes.hasRemaining() && channel.read(bytes) >= 0) {}
    }
    return Arrays.copyOf(bytes.array(), bytes.position());
  }

  @Override
  public void delete(String key) throws IOException {
    Files.deleteIfExists(directory.resolve(key));
  }

  @Override
  public String report() {
    StringBuilder text = new StringBuilder();
    problems.forEach((file, defect) -> text.append("; ").append(file).append(' ').append(defect));
    return text.toString();
  }

  @Override
  public void close() {
    // Nothing is open between two calls.
  }
}
