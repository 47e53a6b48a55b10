package io.nccl4j.tools.doctor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.fixtures.Checkout;
import io.nccl4j.fixtures.programs.FinishedProgram;
import io.nccl4j.fixtures.programs.StandIn;
import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Runs the command as a process, with and without the stand-in for NVIDIA's libraries. */
@Tag("slow")
class ProcessTest {
  private static final long SECONDS = 180;

  @TempDir Path folder;

  private static FinishedProgram doctor(Map<String, String> environment, String... args)
      throws IOException, InterruptedException {
    return FinishedProgram.run(environment, command(args));
  }

  private static List<String> command(String... args) {
    List<String> command = FinishedProgram.java(Doctor.class.getName());
    command.addAll(List.of(args));
    return command;
  }

  private static boolean hasLine(FinishedProgram ended, String line) {
    return ended.out().lines().anyMatch(each -> each.equals(line));
  }

  private static Map<String, String> standIn() throws IOException, InterruptedException {
    Map<String, String> environment = StandIn.build();
    environment.put("NCCL4J_STANDIN_DEVICES", "2");
    return environment;
  }

  @Test
  void standInRunsCollectiveAndIsReported() throws Exception {
    FinishedProgram ended = doctor(standIn());
    assertEquals(0, ended.status(), ended.out() + ended.err());
    assertEquals("", ended.err());
    assertTrue(
        hasLine(
            ended,
            "verdict    a collective can run, on the stand-in of nccl4j's tests, which is not"
                + " NCCL"),
        ended.out());
    assertTrue(
        hasLine(
            ended, "note       libnccl is the stand-in of nccl4j's tests, not NVIDIA's library"),
        ended.out());
    assertTrue(hasLine(ended, "  all-reduce, reference 2 ranks, 1000 floats, OK"), ended.out());
  }

  @Test
  void jsonIsOneDocument() throws Exception {
    FinishedProgram ended = doctor(standIn(), "--json");
    assertEquals(0, ended.status(), ended.out() + ended.err());
    Map<?, ?> json = (Map<?, ?>) JsonTree.parse(ended.out());
    assertEquals(true, json.get("usable"));
    Map<?, ?> found = (Map<?, ?>) json.get("found");
    assertEquals("2", found.get("GPUs"));
    assertTrue(
        ("" + found.get("all-reduce, NCCL")).startsWith("1 rank, 1000 floats, OK; "),
        found.toString());
  }

  @Test
  void missingDriverNamesReferenceBackend() throws Exception {
    Map<String, String> environment = standIn();
    environment.put("NCCL4J_STANDIN_DEVICES", "0");
    FinishedProgram ended = doctor(environment);
    assertEquals(1, ended.status(), ended.out() + ended.err());
    assertTrue(
        hasLine(
            ended,
            "verdict    no collective can run on NCCL here; the reference backend works:"
                + " Backend.reference(n)"),
        ended.out());
    assertTrue(ended.out().contains("error      no driver"), ended.out());
  }

  @Test
  void missingLibrariesListAttempts() throws Exception {
    FinishedProgram ended =
        doctor(
            Map.of(
                "NCCL4J_NCCL_LIBRARY", "/missing/libnccl.so",
                "NCCL4J_CUDART_LIBRARY", "/missing/libcudart.so"));
    assertEquals(1, ended.status());
    assertTrue(hasLine(ended, "error      libcudart could not be loaded; tried:"), ended.out());
    assertTrue(
        ended
            .out()
            .contains(
                "environment variable NCCL4J_CUDART_LIBRARY: /missing/libcudart.so: cannot open"
                    + " shared object file"),
        ended.out());
  }

  @Test
  void failedInitialisationIsAnError() throws Exception {
    Map<String, String> environment = standIn();
    environment.put("NCCL4J_STANDIN_FAIL", "ncclCommInitRankConfig=2");
    FinishedProgram ended = doctor(environment);
    assertEquals(1, ended.status(), ended.out());
    assertTrue(
        ended
            .out()
            .contains("error      the all-reduce on NCCL failed while creating a communicator"),
        ended.out());
  }

  @Test
  void hangingAllReduceTimesOut() throws Exception {
    Map<String, String> environment = standIn();
    environment.put("NCCL4J_STANDIN_ABSENT_RANK", "0");
    long start = System.nanoTime();
    FinishedProgram ended = doctor(environment, "--timeout", "4");
    assertEquals(1, ended.status(), ended.out());
    assertTrue(ended.out().contains("error      the all-reduce on NCCL "), ended.out());
    assertTrue(
        TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - start) < SECONDS / 2, ended.out());
  }

  @Test
  void hangingProcessIsKilled() throws Exception {
    Map<String, String> environment = standIn();
    environment.put("NCCL4J_CUDART_LIBRARY", cudartThat("for (;;) pause();").toString());
    FinishedProgram ended = doctor(environment, "--timeout", "8");
    assertEquals(1, ended.status(), ended.out());
    assertTrue(
        hasLine(
            ended,
            "error      the all-reduce on NCCL did not finish within 8 s; it hung while loading"
                + " libcudart"),
        ended.out());
  }

  @Test
  void hangingPythonDoesNotPreventReport() throws Exception {
    Path python = Files.writeString(folder.resolve("python3"), "#!/bin/sh\nexec sleep 1000\n");
    assertTrue(python.toFile().setExecutable(true));
    Map<String, String> environment = standIn();
    environment.put("PATH", folder + ":" + System.getenv("PATH"));
    // The process is killed 5 s after the time limit.
    environment.put(
        "NCCL4J_CUDART_LIBRARY",
        cudartThat("signal(15, (void *) 1); for (;;) pause();").toString());
    FinishedProgram ended = doctor(environment, "--timeout", "1");
    assertEquals("", ended.err());
    assertEquals(1, ended.status(), ended.out());
    assertTrue(hasLine(ended, "  all-reduce, reference 2 ranks, 1000 floats, OK"), ended.out());
  }

  /** Compiles a library that runs a statement when it is loaded. */
  private Path cudartThat(String statement) throws IOException, InterruptedException {
    String load = "__attribute__((constructor)) void load(void)";
    Path file =
        Files.writeString(
            folder.resolve("load.c"),
            "int pause(void); void *signal(int, void *); " + load + " { " + statement + " }");
    Path library = folder.resolve("libcudart.so.13");
    List<String> gcc = List.of("gcc", "-shared", "-fPIC", file + "", "-o", library + "");
    assertEquals(0, FinishedProgram.run(Map.of(), gcc).status());
    return library;
  }

  @Test
  void crashingLibraryIsAFinding() throws Exception {
    Map<String, String> environment = standIn();
    environment.put("NCCL4J_CUDART_LIBRARY", cudartThat("__builtin_trap();").toString());
    FinishedProgram ended = doctor(environment);
    assertEquals(1, ended.status(), ended.out());
    assertTrue(
        hasLine(ended, "error      the all-reduce process crashed while loading libcudart"),
        ended.out());
    assertTrue(ended.out().contains("SIGILL"), "the JVM's crash message is shown: " + ended.out());
    assertTrue(ended.out().contains("[libcudart.so.13+"), ended.out());
  }

  @Test
  void nvidiaLibrariesAreReadWithoutAGpu() throws Exception {
    Path libraries = Checkout.ROOT.resolve("target/native/nvidia");
    assumeTrue(Files.exists(libraries), "NVIDIA's libraries are not installed");
    assumeFalse(Files.exists(Path.of("/dev/nvidiactl")), "there is a GPU");
    FinishedProgram ended =
        doctor(
            Map.of(
                "NCCL4J_NCCL_LIBRARY", libraries.resolve("nccl/lib").toString(),
                "NCCL4J_CUDART_LIBRARY", libraries.resolve("cu13/lib").toString(),
                "NCCL_IB_TIMOUT", "22"));
    assertEquals(1, ended.status(), ended.out());
    assertTrue(
        hasLine(
            ended,
            "warning    NCCL_IB_TIMOUT is not known to NCCL 2.30.7; did you mean"
                + " NCCL_IB_TIMEOUT?"),
        ended.out());
    assertTrue(ended.out().contains("built for CUDA 13.3, code for sm_75 "), ended.out());
    assertFalse(ended.out().contains("not loaded"), ended.out());
  }

  @Test
  void twoLoadedCopiesAreFound() throws Exception {
    Map<String, String> environment = standIn();
    Path copy =
        Files.copy(
            Path.of(environment.get("NCCL4J_NCCL_LIBRARY")).toRealPath(),
            folder.toRealPath().resolve("libnccl.so.2"));
    environment.put("LD_PRELOAD", copy.toString());
    environment.put("LD_LIBRARY_PATH", Checkout.ROOT.resolve("target/standin").toString());
    FinishedProgram ended = doctor(environment);
    assertTrue(
        hasLine(ended, "warning    2 copies of libnccl are loaded in one process:"),
        ended.out() + ended.err());
    assertTrue(hasLine(ended, "             " + copy), ended.out());
  }
}
