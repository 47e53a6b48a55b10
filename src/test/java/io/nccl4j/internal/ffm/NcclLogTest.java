package io.nccl4j.internal.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.LogLines;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Tests how NCCL's log is read. The test opens and writes the file as NCCL does. */
class NcclLogTest {
  private static final int MAX_BYTES = 100_000;

  private final LogLines lines = new LogLines(NcclLog.PROPERTY);
  private NcclLog log;
  private Path file;
  private OutputStream nccl;

  @BeforeEach
  void open() throws IOException {
    log = new NcclLog(MAX_BYTES);
    file = log.file();
    nccl = Files.newOutputStream(file);
  }

  @AfterEach
  void close() throws IOException {
    lines.close();
    nccl.close();
    Files.deleteIfExists(file);
    Files.deleteIfExists(file.getParent());
  }

  private void write(String text) throws IOException {
    nccl.write(text.getBytes(StandardCharsets.UTF_8));
  }

  private static String warning(int number) {
    return "host:1:2 [0] init.cc:3 (f) NCCL WARN %05d {}".formatted(number);
  }

  @Test
  void folderIsPrivateAndGoneOnceNcclWrites() throws Exception {
    Path folder = file.getParent();
    assertEquals("rwx------", PosixFilePermissions.toString(Files.getPosixFilePermissions(folder)));
    log.poll();
    assertTrue(Files.exists(file));
    write("\n" + warning(1) + "\n");
    log.poll();
    assertFalse(Files.exists(folder));
    assertEquals(List.of(warning(1)), lines.lines());
  }

  @Test
  void lineIsLoggedOnceItHasEnded() throws Exception {
    String text = warning(1);
    write(text.substring(0, 30));
    log.poll();
    assertEquals(List.of(), lines.lines());
    write(text.substring(30) + "\n");
    log.poll();
    log.poll();
    assertEquals(List.of(text), lines.lines());
  }

  @Test
  void longLineIsSplit() throws Exception {
    String text = " NCCL WARN " + "x".repeat(65536 - 11) + " NCCL WARN rest";
    write(text + "\n");
    log.poll();
    assertEquals(List.of(text.substring(0, 65536), " NCCL WARN rest"), lines.lines());
  }

  @Test
  void fileThatHasBeenReadIsTruncated() throws Exception {
    try (FileChannel onDisk = FileChannel.open(file)) {
      for (int i = 0; i < 100; i++) {
        write(warning(i) + "\n");
        log.poll();
        assertEquals(warning(i), lines.lines().getLast());
      }
      assertEquals(100, lines.lines().size());
      write(".".repeat(MAX_BYTES) + "\n");
      log.poll();
      assertEquals(0, onDisk.size());
    }
  }

  @Test
  void fileThatGrowsTooFastIsTruncatedUnread() throws Exception {
    String text = warning(1) + "\n";
    write(text.repeat(5000)); // more than twice the maximum
    log.poll();
    write(warning(2) + "\n");
    log.poll();
    String lost = 5000 * text.length() + " bytes of NCCL's log were skipped";
    assertEquals(List.of(lost, warning(2)), lines.lines());
  }

  @Test
  void bytesThatATruncationHasErasedAreReported() throws Exception {
    write("\0\0\0" + warning(1) + "\n"); // a hole of the file reads as zeros
    log.poll();
    assertEquals(List.of(warning(1), "3 bytes of NCCL's log were skipped"), lines.lines());
  }
}
