package io.nccl4j.tools.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.fixtures.programs.FinishedProgram;
import io.nccl4j.fixtures.programs.StandIn;
import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.perf.report.PerfRun;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The command in a separate process, with and without the stand-in for NVIDIA's libraries. */
@Tag("slow")
class ProcessTest {
  @TempDir Path folder;

  /** Runs the command without a warm-up of the JIT, since no test looks at times. */
  private static FinishedProgram perf(Map<String, String> environment, String arguments)
      throws IOException, InterruptedException {
    String all = arguments + " --no-jit-warmup";
    return FinishedProgram.run(environment, command(List.of(all.split(" ", -1))));
  }

  private static List<String> command(List<String> args) {
    List<String> command = PerfProgram.command();
    command.addAll(args);
    return command;
  }

  private static List<List<String>> rows(FinishedProgram ended) {
    return new Command(ended.status(), ended.out(), ended.err()).rows();
  }

  @Test
  void fourRanksOnTheStandInCheckClean() throws IOException, InterruptedException {
    FinishedProgram ended = perf(StandIn.build(), "all_reduce --backend nccl -g 4 -b 8 -e 1M -f 2");
    assertEquals(0, ended.status(), ended.err());
    assertEquals(18, rows(ended).size());
    for (List<String> row : rows(ended)) {
      assertEquals(List.of("0", "0"), List.of(row.get(8), row.get(12)), row.toString());
    }
    assertTrue(ended.out().contains("stand-in"), "the output names the stand-in");
    assertEquals("", ended.err());
  }

  @Test
  void everyCollectiveChecksCleanOnTheStandIn() throws IOException, InterruptedException {
    for (Collective collective : Collective.values()) {
      FinishedProgram ended =
          perf(
              StandIn.build(),
              collective.label()
                  + " --backend nccl -t 2 -g 2 -b 64K -e 64K -p 1 -o mulsum -m 2 -u 1");
      assertEquals(0, ended.status(), collective + ended.err());
    }
  }

  /** Runs the command on the stand-in; returns the CUDA and NCCL functions that it called. */
  private List<String> called(Map<String, String> standIn, String... more)
      throws IOException, InterruptedException {
    Path record = folder.resolve("called");
    Map<String, String> environment = new HashMap<>(standIn);
    environment.put("NCCL4J_STANDIN_RECORD", record.toString());
    List<String> arguments =
        new ArrayList<>(List.of("all_reduce", "--backend", "nccl", "-g", "2", "-b", "8"));
    arguments.addAll(List.of(more));
    FinishedProgram ended = perf(environment, String.join(" ", arguments));
    assertEquals(0, ended.status(), ended.err());
    return Files.readAllLines(record);
  }

  @Test
  void buffersComeFromNcclMemAllocAsInNcclTests() throws IOException, InterruptedException {
    for (String graphs : List.of("0", "1")) {
      List<String> called =
          called(StandIn.build(), "-e", "64K", "-f", "8", "-n", "2", "-G", graphs);
      assertTrue(called.contains("ncclMemAlloc"), called::toString);
      assertTrue(called.contains("ncclMemFree"), called::toString);
      assertFalse(called.contains("cudaMalloc"), called::toString);
    }
  }

  @Test
  void buffersComeFromCudaBeforeNccl219() throws IOException, InterruptedException {
    List<String> called = called(StandIn.build("2.18"), "-e", "64K", "-f", "8", "-n", "2");
    assertTrue(called.contains("cudaMalloc"), called::toString);
  }

  @Test
  void rowsOfSeveralPiecesCheckClean() throws IOException, InterruptedException {
    FinishedProgram ended =
        perf(
            StandIn.build(),
            "all_gather --backend nccl -g 2 -b 20M -e 36M -i 16M -d int8 -u 3 -n 1 -w 0");
    assertEquals(0, ended.status(), ended.err());
    assertEquals(2, rows(ended).size());
  }

  @Test
  void everyPieceOfARowIsChecked() throws IOException, InterruptedException {
    Map<String, String> environment = StandIn.build();
    environment.put("NCCL4J_STANDIN_NOOP", "1");
    FinishedProgram ended =
        perf(environment, "all_reduce --backend nccl -g 1 -b 20M -e 20M -n 1 -w 0");
    assertEquals(Commands.WRONG_DATA, ended.status(), ended.err());
    // Nothing was received: all 5242880 elements are wrong.
    assertEquals("5.24288e+06", rows(ended).getFirst().get(8), ended.out());
  }

  @Test
  void rankThatNeverConnectsTimesOut() throws IOException, InterruptedException {
    assertSilentRankTimesOut(
        "1",
        "WARN NcclCommunicator: Communicator[rank 0 of 2, CUDA device 0]: ncclGroupEnd has been inside NCCL for %s s",
        "time-out: ncclGroupEnd: not finished after %s s: the peers of Communicator[rank 0 of 2");
  }

  @Test
  void silentConnectedRankTimesOut() throws IOException, InterruptedException {
    assertSilentRankTimesOut(
        "0", "time-out: cudaStreamQuery: not finished after %s s: the work on CudaStream");
  }

  private void assertSilentRankTimesOut(String connectsInCalls, String... texts)
      throws IOException, InterruptedException {
    Map<String, String> environment = StandIn.build();
    environment.put("NCCL4J_STANDIN_RANK_FAILS", "1:0");
    environment.put("NCCL4J_STANDIN_CONNECT", connectsInCalls);
    String seconds = "4";
    FinishedProgram ended = allReduceWithin(seconds, environment);
    if (!ended.err().contains(texts[0].formatted("4.0"))) {
      // The timeout limits the creation of the ranks too, which a busy machine may not finish.
      seconds = "12";
      ended = allReduceWithin(seconds, environment);
    }
    assertEquals(Commands.TIMED_OUT, ended.status(), ended.err());
    for (String text : texts) {
      assertTrue(ended.err().contains(text.formatted(seconds + ".0")), ended.err());
    }
  }

  private static FinishedProgram allReduceWithin(String seconds, Map<String, String> environment)
      throws IOException, InterruptedException {
    return perf(environment, "all_reduce --backend nccl -g 2 -T " + seconds);
  }

  @Test
  void moreRanksThanGpusIsABadArgument() throws IOException, InterruptedException {
    FinishedProgram ended = perf(StandIn.build(), "all_reduce --backend nccl -g 9");
    assertEquals(
        "all_reduce_perf: 9 ranks requested but there are 8 GPUs; each rank needs its own,"
            + " unless NCCL_MULTI_RANK_GPU_ENABLE=1 is set\n",
        ended.err());
    assertEquals(2, ended.status());
  }

  @Test
  void ranksShareGpuIfVariableIsSet() throws IOException, InterruptedException {
    Map<String, String> environment = StandIn.build();
    environment.put("NCCL4J_STANDIN_DEVICES", "1");
    environment.put("NCCL_MULTI_RANK_GPU_ENABLE", "1");
    FinishedProgram ended = perf(environment, "all_reduce --backend nccl -g 2 -b 8 -e 64");
    assertEquals(0, ended.status(), ended.err());
    List<String> devices = ended.out().lines().filter(line -> line.startsWith("#  Rank")).toList();
    assertEquals(2, devices.size(), ended.out());
    for (String device : devices) {
      assertTrue(device.contains("device  0 "), device);
    }
  }

  /** Returns what NCCL chose for each row, out of place and in place. */
  private static List<String> chosen(FinishedProgram ended) {
    assertEquals(0, ended.status(), ended.err());
    return rows(ended).stream().map(row -> row.get(9) + " " + row.get(14)).toList();
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          all_reduce                                | TREE/LL/2     | TREE/LL128/2   | RING/SIMPLE/2
          all_reduce -G 2 -m 3 -t 2                 | TREE/LL/2     | TREE/LL128/2   | RING/SIMPLE/2
          all_reduce --algo auto                    | TREE/LL/2     | TREE/LL128/2   | RING/SIMPLE/2
          all_reduce --algo tree                    | TREE/LL/2     | TREE/LL128/2   | TREE/SIMPLE/2
          all_reduce --proto LL -C 1                | TREE/LL/2     | RING/LL/2      | RING/LL/2
          all_reduce --algo Ring:..1K,tree:64K..1M  | RING/LL/2     | TREE/LL128/2   | RING/SIMPLE/2
          all_reduce --algo ring --proto simple:1M.. | RING/LL/2    | RING/LL/2      | RING/SIMPLE/2
          all_gather --algo ring --proto ll128 -z 1 | RING/LL128/2  | RING/LL128/2   | RING/LL128/2
          broadcast -r 1                            | RING/LL/2     | RING/LL/2      | RING/SIMPLE/2
          alltoall                                  | -             | -              | -
          sendrecv                                  | -             | -              | -
          """)
  void rowsShowWhatNcclChose(String arguments, String small, String medium, String large)
      throws IOException, InterruptedException {
    FinishedProgram ended =
        perf(
            StandIn.build(),
            arguments + " --backend nccl -g 2 -b 1K -e 4M -f 64 -n 2 --show-algorithm");
    assertEquals(
        Stream.of(small, medium, large).map(choice -> choice + " " + choice).toList(),
        chosen(ended));
    assertTrue(
        ended.out().lines().anyMatch(line -> line.matches("#.* #wrong +algorithm +(cpu)?time .*")),
        ended.out());
  }

  @Test
  void choicesAreInJsonAndOnThePage() throws IOException, InterruptedException {
    Path json = folder.resolve("a.json");
    Path page = folder.resolve("a.html");
    FinishedProgram ended =
        perf(
            StandIn.build(),
            "all_reduce --backend nccl -g 2 -b 1K -e 1K -N 2 --show-algorithm --proto ll -J %s --html %s"
                .formatted(json, page));
    assertEquals(0, ended.status(), ended.err());
    PerfRun run = PerfRun.read(json);
    assertEquals("TREE/LL/2", run.rows().getFirst().outOfPlace().algorithm());
    assertEquals("TREE/LL/2", run.rows().getFirst().inPlace().algorithm());
    assertEquals("auto, ll", run.facts().get("algorithm"));
    assertTrue(Files.readString(page).contains("TREE/LL/2"));
  }

  @Test
  void choiceThatNcclDoesNotHaveIsRefusedAtItsRow() throws IOException, InterruptedException {
    FinishedProgram ended =
        perf(
            StandIn.build(),
            "all_reduce --backend nccl -g 2 -b 1K -e 4K -f 2 -n 2 --algo tree:..2K,pat:4K.. --proto ll");
    assertEquals(Commands.BAD_ARGUMENTS, ended.status(), ended.err());
    assertEquals(List.of("1024", "2048"), rows(ended).stream().map(List::getFirst).toList());
    assertEquals(
        "all_reduce_perf: NCCL cannot use pat with ll for all_reduce of 4096 bytes here; it can use"
            + " ring with ll, ring with ll128, ring with simple, tree with ll, tree with ll128, tree with simple\n",
        ended.err());
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          2.30 | NCCL_TUNER_PLUGIN=/opt/p.so    | --algo ring      | a Tuner cannot be installed: NCCL_TUNER_PLUGIN already names /opt/p.so
          2.30 | NCCL_TUNER_PLUGIN=/opt/p.so    | --algo auto      | a Tuner cannot be installed: NCCL_TUNER_PLUGIN already names /opt/p.so
          2.30 | NCCL_PROFILER_PLUGIN=/opt/p.so | --show-algorithm | a Profiler cannot be installed: NCCL_PROFILER_PLUGIN already names /opt/p.so
          2.18 | NONE=0                         | --algo ring      | a Tuner: needs NCCL 2.28.3 or later, found 2.18.1
          2.18 | NONE=0                         | --show-algorithm | a Profiler: needs NCCL 2.29.2 or later, found 2.18.1
          2.30 | NONE=0                         | --algo direct    | --algo has direct, which the nccl backend does not have
          """)
  void pluginThatCannotBeInstalledIsRefused(
      String release, String variable, String arguments, String message)
      throws IOException, InterruptedException {
    Map<String, String> environment =
        release.equals("2.30") ? StandIn.build() : StandIn.build(release);
    environment.put(variable.split("=", 2)[0], variable.split("=", 2)[1]);
    FinishedProgram ended = perf(environment, "all_reduce --backend nccl -b 8 -e 8 " + arguments);
    assertNotEquals(0, ended.status());
    assertTrue(ended.err().contains(message), ended.err());
    assertEquals(1, ended.err().lines().count(), ended.err());
    assertEquals("", ended.out());
  }

  @Test
  void pluginsAreInstalledOnlyIfNeeded() throws IOException, InterruptedException {
    Map<String, String> environment = StandIn.build();
    environment.put("NCCL_TUNER_PLUGIN", "/opt/p.so");
    environment.put("NCCL_PROFILER_PLUGIN", "/opt/p.so");
    FinishedProgram ended = perf(environment, "all_reduce --backend nccl -g 2 -b 8 -e 8");
    assertEquals(0, ended.status(), ended.err());
    assertEquals(13, rows(ended).getFirst().size());
  }

  @Test
  void unfinishedWorkOnTheStandInTimesOut() throws IOException, InterruptedException {
    Map<String, String> environment = StandIn.build();
    environment.put("NCCL4J_STANDIN_KERNEL_NS", "600000000000");
    for (String more : List.of("-G 0", "-G 1", "-z 1", "-I 1")) {
      List<String> args = new ArrayList<>(List.of("all_reduce", "--backend", "nccl", "-g", "2"));
      args.addAll(List.of("-b", "8", "-e", "8", "-T", "2"));
      args.addAll(List.of(more.split(" ", -1)));
      FinishedProgram ended = perf(environment, String.join(" ", args));
      assertEquals(4, ended.status(), more + ended.err());
      assertTrue(ended.err().contains("not finished after 2.0 s"), ended.err());
    }
  }

  @Test
  void processThatStartsLateIsNotTimedOut() throws IOException, InterruptedException {
    Map<String, String> environment = new HashMap<>();
    environment.put("NCCL4J_RANK", "0");
    environment.put("NCCL4J_WORLD_SIZE", "2");
    environment.put("NCCL4J_RENDEZVOUS", "file:" + folder);
    List<String> args = List.of("all_reduce", "--backend", "reference", "-T", "8", "-b", "8");
    List<String> command = command(args);
    command.addAll(List.of("-e", "8"));
    ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
    builder.environment().putAll(environment);
    Process early = builder.start();
    try (var lines = early.inputReader().lines()) {
      // Logged when the wait has taken longer than the time-out.
      assertTrue(lines.anyMatch(line -> line.contains("is still waiting for all ranks")));
      environment.put("NCCL4J_RANK", "1");
      FinishedProgram late = FinishedProgram.run(environment, command);
      assertEquals(0, late.status(), late.err());
      assertTrue(early.waitFor(60, TimeUnit.SECONDS), "it exits");
      assertEquals(0, early.exitValue());
    } finally {
      early.destroyForcibly();
    }
  }

  @Test
  void libraryFailureExitsOneWithOneLine() throws IOException, InterruptedException {
    Map<String, String> environment = StandIn.build();
    environment.put("NCCL4J_STANDIN_FAIL", "ncclAllReduce=3@9");
    FinishedProgram ended = perf(environment, "all_reduce --backend nccl -g 2 -b 8 -e 1K");
    assertEquals(1, ended.status(), ended.err());
    assertTrue(ended.err().startsWith("all_reduce_perf: "), ended.err());
    assertFalse(ended.err().contains("\tat "), ended.err());
    assertEquals(1, ended.err().lines().count(), ended.err());
  }

  @Test
  void missingGpuMessageNamesReferenceBackend() throws IOException, InterruptedException {
    Map<String, String> environment = StandIn.build();
    environment.put("NCCL4J_STANDIN_DEVICES", "0");
    FinishedProgram ended = perf(environment, "all_reduce --backend nccl");
    assertEquals(1, ended.status());
    assertTrue(ended.err().contains("--backend reference"), ended.err());
    assertFalse(ended.err().contains("\tat "), ended.err());
    assertEquals("", ended.out());
  }

  @Test
  void perfFallbackIsExplainedInTheHeader() throws IOException, InterruptedException {
    Map<String, String> environment = StandIn.build();
    environment.put("NCCL4J_STANDIN_DEVICES", "0");
    FinishedProgram ended = perf(environment, "all_reduce -b 8 -e 8");
    assertEquals(0, ended.status(), ended.err());
    assertTrue(
        ended.out().contains("# NCCL is not used: cudaGetDeviceCount: no NVIDIA driver"),
        ended.out());
    assertTrue(ended.out().contains(", backend reference;"), ended.out());
  }

  @Test
  void perfNamedLibraryMissingFails() throws IOException, InterruptedException {
    Map<String, String> environment = StandIn.build();
    environment.put("NCCL4J_NCCL_LIBRARY", "/missing/libnccl.so");
    FinishedProgram ended = perf(environment, "all_reduce -b 8 -e 8");
    assertEquals(1, ended.status());
    assertTrue(ended.err().contains("/missing/libnccl.so"), ended.err());
    assertEquals("", ended.out());
  }

  @Test
  void allocationFailureSuggestsSmallerSize() throws IOException, InterruptedException {
    Map<String, String> environment = StandIn.build();
    environment.put("NCCL4J_STANDIN_FAIL", "ncclMemAlloc=1");
    FinishedProgram ended = perf(environment, "all_reduce --backend nccl -b 8 -e 8");
    assertEquals(1, ended.status());
    assertTrue(ended.err().startsWith("all_reduce_perf: ncclMemAlloc: "), ended.err());
    assertTrue(ended.err().endsWith("; a smaller -e needs less memory\n"), ended.err());
  }

  @Test
  void cudaAllocationFailureSuggestsSmallerSize() throws IOException, InterruptedException {
    Map<String, String> environment = StandIn.build("2.18");
    environment.put("NCCL4J_STANDIN_FAIL", "cudaMalloc=2");
    FinishedProgram ended = perf(environment, "all_reduce --backend nccl -b 8 -e 8");
    assertEquals(1, ended.status());
    assertEquals(
        "all_reduce_perf: cudaMalloc: out of memory (cudaErrorMemoryAllocation, code 2);"
            + " a smaller -e needs less memory\n",
        ended.err());
  }

  @Test
  void unwritableOutputIsFailure() throws IOException, InterruptedException {
    Path full = Path.of("/dev/full");
    assumeTrue(Files.exists(full), "no /dev/full");
    for (List<String> args : List.of(List.of("--help"), List.of("all_reduce", "-b", "8"))) {
      FinishedProgram ended =
          FinishedProgram.run(new ProcessBuilder(command(args)).redirectOutput(full.toFile()));
      assertEquals(1, ended.status(), args + ended.err());
      assertTrue(ended.err().contains("cannot write to stdout"), ended.err());
    }
  }

  @Test
  void firstLineNamesTheVersionOfTheJar() throws IOException, InterruptedException {
    boolean packaged = System.getProperty("java.class.path").contains("nccl4j-0.");
    assumeTrue(packaged, "nccl4j is not packaged in this build");
    String args = "all_reduce --backend reference -b 8 -e 8";
    String version = perf(Map.of(), args).out().lines().findFirst().orElseThrow();
    assertTrue(version.startsWith("# nccl4j 0."), version);
  }

  @Test
  void interruptedRunLeavesNoEmptyFile() throws IOException, InterruptedException {
    Path json = folder.resolve("result.json");
    List<String> args = new ArrayList<>(command(List.of("all_reduce", "--backend", "reference")));
    args.addAll(List.of("-b", "8M", "-e", "8M", "-N", "0", "-J", json.toString()));
    Process process = new ProcessBuilder(args).redirectErrorStream(true).start();
    try (var lines = process.inputReader().lines()) {
      assertTrue(lines.anyMatch(line -> line.contains("8388608  ")), "it has written a row");
      assertTrue(Files.exists(json), "the file exists while it runs");
      process.destroy();
      assertTrue(process.waitFor(60, TimeUnit.SECONDS), "it exits");
    } finally {
      process.destroyForcibly();
    }
    assertFalse(Files.exists(json), "the file is deleted");
  }

  @Test
  void signalIsExitStatusWithProcs() throws IOException, InterruptedException {
    List<String> args = new ArrayList<>(command(List.of("all_reduce", "--backend", "reference")));
    args.addAll(List.of("--procs", "2", "-b", "8M", "-e", "8M", "-N", "0"));
    Process process = new ProcessBuilder(args).redirectErrorStream(true).start();
    try (var lines = process.inputReader().lines()) {
      assertTrue(lines.anyMatch(line -> line.contains("8388608  ")), "it has written a row");
      // Process.destroy would also close the pipe.
      assertTrue(process.toHandle().destroy());
      assertTrue(process.waitFor(60, TimeUnit.SECONDS), "it exits");
    } finally {
      process.destroyForcibly();
    }
    assertEquals(128 + 15, process.exitValue());
  }

  @Test
  void missingLibrariesAreReported() throws IOException, InterruptedException {
    FinishedProgram ended =
        perf(
            Map.of(
                "NCCL4J_NCCL_LIBRARY",
                "/missing/libnccl.so",
                "NCCL4J_CUDART_LIBRARY",
                "/missing/libcudart.so"),
            "all_reduce --backend nccl");
    assertEquals(1, ended.status());
    assertTrue(ended.err().contains("/missing/libcudart.so"), ended.err());
    assertFalse(ended.err().contains("\tat "), ended.err());
  }

  @Test
  void pipeReceivesOnlyTheTable() throws IOException, InterruptedException {
    FinishedProgram ended = perf(Map.of(), "all_reduce --backend reference -b 8 -e 1K -f 2");
    assertEquals(0, ended.status());
    assertEquals("", ended.err());
    assertEquals(8, rows(ended).size());
  }
}
