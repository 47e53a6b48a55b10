package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.internal.util.Deadline;
import java.io.BufferedReader;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A process that runs out of file descriptors because of unauthenticated connections. */
@Tag("slow")
class FileDescriptorsTest {
  private static final int FILES = 96;
  private static final String WARNING = "Too many open files";
  private static final Duration WATCHED = Duration.ofSeconds(3);

  @ParameterizedTest
  @ValueSource(strings = {"ranks", "rendezvous"})
  void warnsOnceAndDoesNotSpin(String kind, @TempDir Path directory) throws Exception {
    Path errors = directory.resolve("errors");
    Process process = start(kind, errors);
    List<Socket> connections = new ArrayList<>();
    try (BufferedReader output = process.inputReader()) {
      String[] address = output.readLine().split(" ", -1);
      InetSocketAddress target = new InetSocketAddress(address[0], Integer.parseInt(address[1]));
      for (int i = 0; i < 2 * FILES; i++) {
        Socket connection = new Socket();
        connection.connect(target, 10_000);
        connections.add(connection);
        if (i == 0) {
          // Classes are loaded from files; the first greeting shows that they are loaded.
          connection.setSoTimeout(10_000);
          assertNotEquals(-1, connection.getInputStream().read());
        }
      }
      // Connecting uses time of the process as well, and may be slow.
      awaitWarning(errors);
      Duration before = cpu(process);
      Thread.sleep(WATCHED);
      Duration used = cpu(process).minus(before);
      List<String> lines = Files.readAllLines(errors);
      assertEquals(
          1, lines.stream().filter(line -> line.contains(WARNING)).count(), lines::toString);
      assertEquals(List.of(), lines.stream().filter(line -> line.startsWith("\tat ")).toList());
      assertTrue(used.compareTo(WATCHED.dividedBy(2)) < 0, () -> "it used " + used);
      assertTrue(process.isAlive());
    } finally {
      for (Socket connection : connections) {
        connection.close();
      }
      process.getOutputStream().close();
      process.destroy();
      assertTrue(process.waitFor(20, TimeUnit.SECONDS), "the process did not end");
    }
  }

  private static void awaitWarning(Path errors) throws Exception {
    Deadline deadline = Deadline.after(Duration.ofSeconds(20));
    while (!Files.readString(errors).contains(WARNING)) {
      assertFalse(deadline.passed(), "it has not warned");
      Thread.sleep(20);
    }
  }

  private static Duration cpu(Process process) {
    return process.info().totalCpuDuration().orElseThrow();
  }

  private static Process start(String kind, Path errors) throws IOException {
    return new ProcessBuilder(
            "bash",
            "-c",
            "ulimit -n " + FILES + "; exec \"$@\"",
            "bash",
            Path.of(System.getProperty("java.home"), "bin", "java").toString(),
            "-XX:TieredStopAtLevel=1",
            "-Xmx64m",
            "-Dlog4j2.simplelogLevel=WARN",
            "-Dio.nccl4j.pendingConnections=1000",
            "-cp",
            RankProcesses.classPath(),
            ListeningProcess.class.getName(),
            kind)
        .redirectError(errors.toFile())
        .start();
  }
}
