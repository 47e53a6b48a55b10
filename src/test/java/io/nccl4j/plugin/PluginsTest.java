package io.nccl4j.plugin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.Requirement;
import io.nccl4j.fixtures.programs.FinishedProgram;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/**
 * Installs all plugins on the stand-in, which calls them as NCCL does: in a new process each time,
 * since they are installed before it is loaded.
 */
@OnStandIn
class PluginsTest {
  @Test
  void profilerSeesWhatTheTunerChose() throws Exception {
    FinishedProgram program = run(Map.of(), "1");
    List<String> lines = said(program).lines().toList();
    assertEquals(
        List.of(
            "rank 0: created of 2 on 1",
            "rank 0: called AllReduce 4 ncclFloat32 0",
            "rank 0: launched AllReduce 0 4 ncclFloat32 0 TREE LL 2",
            "rank 0: called AllReduce 262144 ncclFloat32 0",
            "rank 0: launched AllReduce 1 262144 ncclFloat32 0 TREE SIMPLE 5",
            "rank 0: called Broadcast 4 ncclFloat32 1",
            "rank 0: launched Broadcast 0 16 ncclInt8 1 RING LL 2",
            "rank 0: called Send 4 ncclFloat32 -1",
            "rank 0: launched Send 4 ncclFloat32 1",
            "rank 0: destroyed"),
        lines.stream().filter(line -> line.startsWith("rank 0")).toList(),
        program::output);
    assertEquals(
        List.of("destroyed true", "dropped 0", "asked true", "not stopped: 0, kernels: 0"),
        lines.stream().filter(line -> !line.startsWith("rank ")).toList(),
        program::output);
  }

  @Test
  void failuresAreLoggedOnceAndChangeNothing() throws Exception {
    String output = run(Map.of(), "1").output();
    assertEquals(1, count(output, "a profiler that always throws"), output);
    assertEquals(1, count(output, "NCCL cannot use PAT with LL for this broadcast"), output);
    assertTrue(output.contains("TunerPlugin.getCollInfo failed, and NCCL continues"), output);
  }

  private static int count(String text, String part) {
    return text.split(part, -1).length - 1;
  }

  @Test
  void pluginsAreOpenedAgainByLaterCommunicators() throws Exception {
    assertEquals(
        "destroyed true\ndropped 0\nasked true\nnot stopped: 0, kernels: 0\n",
        said(run(Map.of(), "20")));
  }

  @ParameterizedTest
  @CsvSource({
    "profiler, NCCL_PROFILER_PLUGIN, a Profiler",
    "tuner, NCCL_TUNER_PLUGIN, a Tuner",
    "environment, NCCL_ENV_PLUGIN, an NcclEnvironment"
  })
  void pluginOfTheUserIsRespected(String mode, String variable, String plugin) throws Exception {
    assertEquals(
        plugin
            + " cannot be installed: "
            + variable
            + " already names /opt/plugin.so, and NCCL loads one plugin of a kind\n",
        said(run(Map.of(variable, "/opt/plugin.so"), mode)));
  }

  @Test
  void programOfTheGuideTunesAllReduces() throws Exception {
    FinishedProgram program = run(Map.of(), PluginsGuide.class);
    List<String> lines = program.out().lines().toList();
    assertTrue(lines.contains("AllReduce 262144: TREE"), program::output);
    assertTrue(program.out().contains("NCCL_COMM_BLOCKING"), program::output);
    assertEquals("all events: true", lines.getLast());
  }

  @Test
  void installationIsRefusedOnceNcclIsLoaded() throws Exception {
    assertEquals(
        "a Profiler must be installed before libnccl.so.2 is loaded, but this process has loaded"
            + " it\n",
        said(run(Map.of(), "late")));
  }

  /** Returns what the program has said, without its log. */
  static String said(FinishedProgram program) {
    return program
        .out()
        .lines()
        .filter(line -> line.startsWith("> "))
        .map(line -> line.substring(2) + "\n")
        .collect(Collectors.joining());
  }

  /** Runs {@link PluginUser} on the libraries of this process. */
  static FinishedProgram run(Map<String, String> environment, String mode) throws Exception {
    return run(environment, PluginUser.class, mode);
  }

  private static FinishedProgram run(
      Map<String, String> environment, Class<?> main, String... arguments) throws Exception {
    List<String> command =
        FinishedProgram.java(
            "-Dio.nccl4j.nccl.library=" + Requirement.library("nccl"),
            "-Dio.nccl4j.cudart.library=" + Requirement.library("cudart"),
            main.getName());
    command.addAll(List.of(arguments));
    FinishedProgram program = FinishedProgram.run(environment, command);
    assertEquals(0, program.status(), program::output);
    return program;
  }
}
