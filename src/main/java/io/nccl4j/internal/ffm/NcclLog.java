package io.nccl4j.internal.ffm;

import io.nccl4j.internal.util.Loggers;
import io.nccl4j.internal.util.Poller;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.Logger;

/**
 * Passes the lines that NCCL logs to Log4j, if {@value #PROPERTY} asks for it.
 *
 * <p>NCCL writes them to a regular file, since it would block on a pipe that nobody reads in time.
 * A thread reads the file every 100 ms. NCCL has the file open at a position that only grows, so
 * once the file is truncated, only what NCCL writes from then on occupies the disk again, and the
 * position in the file stays valid.
 */
final class NcclLog {
  /** The system property, and the name of the logger; takes precedence over {@link #VARIABLE}. */
  static final String PROPERTY = "io.nccl4j.nccl.log";

  /** The environment variable. */
  static final String VARIABLE = "NCCL4J_NCCL_LOG";

  private static final Logger LOG = Loggers.of(PROPERTY);
  private static final String LEVEL = "NCCL_DEBUG";
  private static final String FILE = "NCCL_DEBUG_FILE";
  private static final long POLL_MILLIS = 100;
  private static final long MAX_BYTES = 16 << 20;
  private static final int MAX_LINE_BYTES = 64 << 10;

  private final Path file;
  private final FileChannel channel;
  private final long maxBytes;
  private final ByteBuffer chunk = ByteBuffer.allocate(MAX_LINE_BYTES);
  private final ByteArrayOutputStream line = new ByteArrayOutputStream();
  // What has been read, and where NCCL's position was when the file was truncated last.
  private long position;
  private long truncatedAt;
  private boolean deleted;

  /**
   * Creates the file in a new folder that only this user can read.
   *
   * @param maxBytes how much of the file may be on the disk after all of it has been read; twice
   *     that before
   */
  NcclLog(long maxBytes) throws IOException {
    this.maxBytes = maxBytes;
    // Java creates it with the permissions rwx------.
    file = Files.createTempDirectory("nccl4j-log-").resolve("nccl.log");
    channel =
        FileChannel.open(
            file, StandardOpenOption.CREATE_NEW, StandardOpenOption.READ, StandardOpenOption.WRITE);
  }

  /**
   * Starts to pass NCCL's lines to Log4j if the property or the variable is {@code true}. Called
   * once, after NCCL has been loaded and before its first function that logs.
   *
   * @param loadedBefore whether other code of this process had loaded NCCL before, which may have
   *     opened its log already
   * @throws IllegalArgumentException if the value is neither {@code true} nor {@code false}
   */
  static void startIfWanted(boolean loadedBefore) {
    if (!wanted()) {
      return;
    }
    String other = System.getenv(FILE);
    if (other != null) {
      LOG.warn("NCCL's log stays in {}, which the variable {} names", other, FILE);
      return;
    }
    if (loadedBefore) {
      LOG.warn(
          "NCCL's log stays where it is: other code of this process has loaded NCCL before nccl4j");
      return;
    }
    try {
      new NcclLog(MAX_BYTES).start();
    } catch (IOException e) {
      LOG.warn("NCCL's log stays on stdout: its file cannot be created", e);
    }
  }

  private static boolean wanted() {
    String property = System.getProperty(PROPERTY);
    String text = property != null ? property : System.getenv(VARIABLE);
    if (text == null || text.equals("false")) {
      return false;
    }
    if (!text.equals("true")) {
      throw new IllegalArgumentException(
          (property != null ? PROPERTY : VARIABLE)
              + " is \""
              + text
              + "\"; it must be true or false");
    }
    return true;
  }

  private void start() {
    // NCCL replaces %h and %p.
    NativeEnvironment.set(FILE, file.toString().replace("%", "%%"));
    if (System.getenv(LEVEL) == null) {
      NativeEnvironment.set(LEVEL, "WARN");
    }
    Runtime.getRuntime().addShutdownHook(new Thread(this::end, "nccl4j-log-end"));
    new Poller(
            Thread.ofPlatform()
                .daemon()
                .inheritInheritableThreadLocals(false)
                .name("nccl4j-log")
                .factory(),
            POLL_MILLIS,
            this::poll,
            () -> false)
        .watch();
  }

  Path file() {
    return file;
  }

  /** Logs the lines that NCCL has written since the last call. */
  synchronized void poll() {
    try {
      long size = channel.size();
      if (size > 0) {
        // NCCL has opened it. Without a name it is gone when this process ends, however it ends.
        delete();
      }
      if (size - truncatedAt > 2 * maxBytes) {
        truncate(size); // NCCL writes faster than the lines can be logged
      }
      while (position < size) {
        read();
      }
      if (size - truncatedAt > maxBytes && channel.size() == size) {
        truncate(size);
      }
    } catch (IOException e) {
      throw new UncheckedIOException("NCCL's log cannot be read", e);
    }
  }

  private void delete() throws IOException {
    if (!deleted) {
      deleted = true;
      Files.delete(file);
      Files.delete(file.getParent());
    }
  }

  private void read() throws IOException {
    int n = channel.read(chunk.clear(), position);
    position += n;
    int skipped = 0;
    for (int i = 0; i < n; i++) {
      byte next = chunk.get(i);
      if (next == 0) {
        skipped++; // written just before the file was truncated
      } else if (next != '\n') {
        line.write(next);
      }
      if (next == '\n' || line.size() == MAX_LINE_BYTES) {
        log(line.toString(StandardCharsets.UTF_8));
        line.reset();
      }
    }
    reportSkipped(skipped);
  }

  private void truncate(long size) throws IOException {
    channel.truncate(0);
    reportSkipped(size - position);
    position = size;
    truncatedAt = size;
  }

  private static void reportSkipped(long bytes) {
    if (bytes > 0) {
      LOG.warn("{} bytes of NCCL's log were skipped", bytes);
    }
  }

  private static void log(String text) {
    if (!text.isBlank()) {
      LOG.log(level(text), "{}", text);
    }
  }

  private static Level level(String text) {
    if (text.contains(" NCCL WARN ")) {
      return Level.WARN;
    }
    return text.contains(" NCCL INFO ") ? Level.INFO : Level.DEBUG;
  }

  private synchronized void end() {
    try {
      poll();
    } catch (UncheckedIOException e) {
      LOG.warn("the last lines of NCCL's log are lost", e);
    }
    try {
      delete();
    } catch (IOException e) {
      LOG.warn("{} cannot be deleted", file, e);
    }
  }
}
