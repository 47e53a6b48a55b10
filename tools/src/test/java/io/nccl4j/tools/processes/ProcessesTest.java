package io.nccl4j.tools.processes;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.tools.cli.Commands;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.io.Writer;
import java.lang.ProcessBuilder.Redirect;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Starts and terminates processes, which are shell commands here. */
@Timeout(120)
class ProcessesTest {
  private static final Duration AMPLE = Duration.ofSeconds(100);

  @TempDir Path folder;

  private record Result(int status, Set<String> output) {}

  private static Result run(
      int count, int ranksPerProcess, Duration grace, Duration limit, String command)
      throws IOException {
    ByteArrayOutputStream output = new ByteArrayOutputStream();
    PrintStream err = new PrintStream(output, true, StandardCharsets.UTF_8);
    int status =
        new Processes("program", ranksPerProcess, grace, err)
            .run(count, List.of("sh", "-c", command), limit);
    return new Result(
        status, new TreeSet<>(output.toString(StandardCharsets.UTF_8).lines().toList()));
  }

  @Test
  void outputIsPrefixedWithRank() throws IOException {
    Result result =
        run(3, 1, AMPLE, null, "echo $NCCL4J_RANK $NCCL4J_WORLD_SIZE $NCCL4J_LOCAL_RANK >&2");
    assertEquals(new Result(0, Set.of("rank 0: 0 3 0", "rank 1: 1 3 1", "rank 2: 2 3 2")), result);
  }

  @Test
  void outputIsPrefixedWithAllRanksOfProcess() throws IOException {
    assertEquals(
        Set.of("ranks 0-2: line", "ranks 3-5: line"),
        run(2, 3, AMPLE, null, "echo line >&2").output());
  }

  @Test
  void rendezvousDirectoryIsSharedAndDeleted() throws IOException {
    Result result =
        run(
            2,
            1,
            AMPLE,
            null,
            "d=${NCCL4J_RENDEZVOUS#file:}; mkdir $d/$NCCL4J_RANK && echo $d >&2");
    assertEquals(0, result.status());
    assertEquals(2, result.output().size());
    String first = result.output().iterator().next().replace("rank 0: ", "");
    assertTrue(result.output().contains("rank 1: " + first), result::toString);
    assertFalse(Files.exists(Path.of(first)), first);
  }

  @Test
  void highestStatusIsReturnedAndFailuresReported() throws IOException {
    assertEquals(
        new Result(
            3,
            Set.of("program: rank 1 exited with status 1", "program: rank 3 exited with status 3")),
        run(4, 1, AMPLE, null, "exit $((NCCL4J_RANK % 2 * NCCL4J_RANK))"));
  }

  @Test
  void signalIsReported() throws IOException {
    Result result = run(2, 1, AMPLE, null, "[ $NCCL4J_RANK = 0 ] || kill -9 $$");
    assertEquals(
        new Result(137, Set.of("program: rank 1 exited with status 137 (signal 9)")), result);
  }

  @Test
  void processesAreTerminatedAfterFailure() throws IOException {
    long start = System.nanoTime();
    Result result =
        run(3, 1, Duration.ofSeconds(1), null, "[ $NCCL4J_RANK = 1 ] && exit 2; exec sleep 1000");
    assertEquals(2, result.status());
    assertEquals(
        Set.of(
            "program: rank 1 exited with status 2",
            "program: rank 0 is still running 1 s after another process exited; terminating it",
            "program: rank 2 is still running 1 s after another process exited; terminating it"),
        result.output());
    assertTrue(System.nanoTime() - start < 60e9, "it does not wait for the sleeping processes");
  }

  @Test
  void processThatOutlivesOthersTimesOut() throws IOException {
    Result result =
        run(2, 1, Duration.ofSeconds(1), null, "[ $NCCL4J_RANK = 1 ] || exec sleep 1000");
    assertEquals(Commands.TIMED_OUT, result.status());
  }

  @Test
  void limitTerminatesAll() throws IOException {
    assertEquals(
        new Result(
            Commands.TIMED_OUT,
            Set.of(
                "program: time-out: rank 0 is still running after 1 s",
                "program: time-out: rank 1 is still running after 1 s")),
        run(2, 1, AMPLE, Duration.ofSeconds(1), "exec sleep 1000"));
  }

  @Test
  @Tag("slow")
  void processThatIgnoresSigtermIsKilled() throws IOException {
    Result result =
        run(1, 1, AMPLE, Duration.ofSeconds(5), "trap '' TERM; echo $$ >&2; exec sleep 1000");
    assertEquals(Commands.TIMED_OUT, result.status());
    String pid =
        result.output().stream()
            .filter(line -> line.startsWith("rank 0: "))
            .findFirst()
            .orElseThrow();
    assertFalse(Files.exists(Path.of("/proc", pid.replace("rank 0: ", ""))), pid);
  }

  @Test
  void descendantOfTerminatedProcessIsKilled() throws Exception {
    Path pipe = folder.resolve("pipe");
    assertEquals(0, new ProcessBuilder("mkfifo", pipe.toString()).start().waitFor());
    List<String> command = List.of("sh", "-c", "sleep 1000 > " + pipe + " & wait");
    InputStream output;
    try (ChildProcesses children = new ChildProcesses("processes-test")) {
      children.start(command, Map.of("PATH", "/usr/bin:/bin"), Redirect.DISCARD, Redirect.DISCARD);
      output = Files.newInputStream(pipe);
    }
    try (output) {
      // The pipe ends with the last process that has it open.
      assertEquals(-1, output.read());
    }
  }

  @Test
  void missingTemporaryFolderIsTheOnlyError() throws Exception {
    Path none = folder.resolve("none");
    Process starting = starts(none);
    try (BufferedReader output = starting.inputReader()) {
      List<String> errors = output.lines().filter(line -> line.startsWith("Exception")).toList();
      assertEquals(1, errors.size(), errors.toString());
      assertTrue(errors.getFirst().contains("NoSuchFileException: " + none), errors.toString());
      assertEquals(1, starting.waitFor());
    } finally {
      starting.destroyForcibly();
    }
  }

  @Test
  void signalDuringStartLeavesNothingBehind() throws Exception {
    Process starting = starts(folder);
    try (BufferedReader output = starting.inputReader()) {
      assertEquals("rank 0: up", output.readLine());
      // Process.destroy would close the pipe.
      starting.toHandle().destroy();
      output.transferTo(Writer.nullWriter());
      assertTrue(starting.waitFor(60, TimeUnit.SECONDS), "it is still running");
      assertEquals(List.of(), started().map(ProcessHandle::info).toList());
    } finally {
      starting.destroyForcibly();
      started().forEach(ProcessHandle::destroyForcibly);
    }
    assertArrayEquals(new String[0], folder.toFile().list());
  }

  /** Starts {@link Starts} in its own Java. */
  private Process starts(Path temporary) throws IOException {
    return new ProcessBuilder(
            Path.of(System.getProperty("java.home"), "bin", "java").toString(),
            "-Djava.io.tmpdir=" + temporary,
            "--class-path",
            String.join(File.pathSeparator, "target/classes", "target/test-classes"),
            Starts.class.getName(),
            folder.toString())
        .redirectErrorStream(true)
        .start();
  }

  private Stream<ProcessHandle> started() {
    return ProcessHandle.allProcesses()
        .filter(process -> process.info().commandLine().orElse("").endsWith("done " + folder));
  }

  /** Starts so many processes that a signal arrives before the last one has started. */
  static final class Starts {
    private static final int MANY = 100;

    private Starts() {}

    public static void main(String[] args) throws IOException {
      String command = "[ $NCCL4J_RANK = 0 ] && echo up >&2; while :; do sleep 1; done";
      new Processes("program", 1, AMPLE, System.err)
          .run(MANY, List.of("sh", "-c", command, args[0]), null);
    }
  }
}
