package io.nccl4j.examples.training;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.fixtures.programs.FinishedProgram;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Runs the commands as processes, one rank each. */
@Tag("slow")
class CommandTest {
  @TempDir Path folder;

  private static FinishedProgram run(String main, Map<String, String> environment, String... args)
      throws IOException, InterruptedException {
    return FinishedProgram.run(environment, command(main, args));
  }

  /** Returns the command to start a main class with the options of this process. */
  private static List<String> command(String main, String... args) {
    List<String> command =
        FinishedProgram.java(
            "--sun-misc-unsafe-memory-access=allow",
            "-Dorg.bytedeco.javacpp.cachedir="
                + System.getProperty("org.bytedeco.javacpp.cachedir"),
            "io.nccl4j.examples.training." + main);
    command.addAll(List.of(args));
    return command;
  }

  @Test
  void gradientsOfTwoProcessesAreAveraged() throws Exception {
    FinishedProgram ended = run("DdpSimple", Map.of(), "--backend", "reference", "--procs", "2");
    assertEquals(0, ended.status(), ended.err());
    assertEquals(
        """
        rank 0 of 2: local gradient 0.0, averaged 3.5
        rank 1 of 2: local gradient 7.0, averaged 3.5
        """,
        ended.out());
  }

  @Test
  void roundedAverageIsAccepted() throws Exception {
    FinishedProgram ended = run("DdpSimple", Map.of(), "--backend", "reference", "--procs", "3");
    assertEquals(0, ended.status(), ended.err());
    assertEquals(3, ended.out().lines().filter(line -> line.endsWith("averaged 7.0")).count());
  }

  @Test
  void processesTrainAndWriteRecordings() throws Exception {
    String[] args = {"--backend", "reference", "--size", "16", "--batch", "8", "--steps", "3"};
    String[] two =
        Stream.concat(
                Stream.of(args),
                Stream.of("--procs", "2", "--bucket", "1K", "--trace", folder.toString()))
            .toArray(String[]::new);
    String[] one = Stream.concat(Stream.of(args), Stream.of("--procs", "1")).toArray(String[]::new);
    FinishedProgram ended = run("DdpExample", Map.of(), two);
    assertEquals(0, ended.status(), ended.err());
    assertEquals(losses(run("DdpExample", Map.of(), one)), losses(ended));
    assertTrue(Files.size(folder.resolve("rank0.jfr")) > 0);
    assertTrue(Files.size(folder.resolve("rank1.jfr")) > 0);
  }

  /** Returns the losses to the fourth digit, without the times. */
  private static List<String> losses(FinishedProgram ended) {
    List<String> losses =
        ended
            .out()
            .lines()
            .filter(line -> !line.startsWith("#"))
            .map(line -> line.substring(0, 17))
            .toList();
    assertEquals(3, losses.size(), ended.out());
    return losses;
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "--batch 7 --procs 2 | --batch is 7; it must be a multiple of the number of ranks, 2",
        "--procs 0 | --procs is 0; it must be from 1 to ",
        "--procs 100000 | --procs is 100000; it must be from 1 to ",
        "--size 60000 | --size is 60000; it must be 46340 or less",
        "--size 0 | --size is 0; it must be 1 or more",
        "--steps many | Invalid value for option '--steps': 'many' is not a whole number",
        "--colour | Unknown option: '--colour'",
        "--every 0 | --every is 0; it must be 1 or more",
        "--checkpoint /dev/null --size 1 | --checkpoint is /dev/null, which has 0 bytes; for --size"
            + " 1 it must have 28",
        "--checkpoint / | Invalid value for option '--checkpoint': '/' cannot be written: it is a"
            + " folder",
        "--rate -1 | --rate is -1.0; it must be positive",
        "--bucket much | --bucket: 'much' is not a size",
        "--bucket 0 | --bucket: '0' is too small; the minimum is 1 byte"
      })
  void invalidOptionsAreRejectedBeforeAnythingStarts(String args, String message) throws Exception {
    assertRejected(message, args.split(" ", -1));
  }

  private void assertRejected(String message, String... args) throws Exception {
    FinishedProgram ended = run("DdpExample", Map.of(), args);
    assertEquals(2, ended.status());
    assertTrue(ended.err().startsWith("ddp-example: " + message), ended.err());
    assertTrue(ended.err().endsWith("; see --help\n"), ended.err());
    assertEquals(1, ended.err().lines().count(), ended.err());
    assertEquals("", ended.out());
  }

  @Test
  void missingTraceFolderIsRejectedBeforeAnythingStarts() throws Exception {
    String absent = folder.resolve("absent").toString();
    assertRejected("--trace is " + absent + "; it must be an existing folder", "--trace", absent);
  }

  @Test
  void unwritableTraceIsRejectedBeforeAnythingStarts() throws Exception {
    Path taken = Files.createDirectory(folder.resolve("rank1.jfr"));
    assertRejected(
        "--trace: '" + taken + "' cannot be written: it is a folder", "--trace", folder.toString());
  }

  @Test
  void contradictingLauncherVariablesAreReportedInOneLine() throws Exception {
    FinishedProgram ended =
        run("DdpSimple", Map.of("RANK", "0", "WORLD_SIZE", "2", "PMI_RANK", "1", "PMI_SIZE", "2"));
    assertEquals(2, ended.status());
    assertTrue(
        ended.err().startsWith("ddp-simple: RANK is 0 and WORLD_SIZE is 2, but PMI_RANK is 1"),
        ended.err());
    assertEquals(1, ended.err().lines().count(), ended.err());
  }

  @Test
  void unwritableOutputIsAFailure() throws Exception {
    Path full = Path.of("/dev/full");
    assumeTrue(Files.exists(full), "no /dev/full");
    FinishedProgram ended =
        FinishedProgram.run(
            new ProcessBuilder(command("DdpSimple", "--backend", "reference", "--procs", "1"))
                .redirectOutput(full.toFile()));
    assertEquals(1, ended.status());
    assertEquals(
        "ddp-simple: cannot write to stdout; its device is full or its reader has exited\n",
        ended.err());
  }

  @Test
  void processesAreNotStartedUnderALauncher() throws Exception {
    FinishedProgram ended =
        run("DdpSimple", Map.of("NCCL4J_RANK", "0", "NCCL4J_WORLD_SIZE", "1"), "--procs", "2");
    assertEquals(2, ended.status());
    assertTrue(
        ended.err().startsWith("ddp-simple: --procs is 2, but this is rank 0 of 1; omit it"),
        ended.err());
  }
}
