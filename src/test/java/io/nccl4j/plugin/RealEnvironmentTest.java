package io.nccl4j.plugin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.libraries.OnRealLibraries;
import io.nccl4j.fixtures.libraries.Requirement;
import io.nccl4j.fixtures.programs.FinishedProgram;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/**
 * Gives NVIDIA's NCCL, without a driver, an environment: in a new process each time, since NCCL
 * reads it once.
 */
@OnRealLibraries
class RealEnvironmentTest {
  @Test
  void ncclAsksTheInstalledEnvironment() throws Exception {
    List<String> lines = run(Map.of(), "NCCL_SOCKET_FAMILY=AF_INET").out().lines().toList();
    assertEquals("before Optional.empty []", lines.get(0));
    assertEquals("result 0", lines.get(1));
    assertEquals("version 2.30.7", lines.get(2));
    assertTrue(lines.contains("asked NCCL_SOCKET_IFNAME"), lines::toString);
    assertTrue(lines.contains("asked NCCL_SOCKET_FAMILY"), lines::toString);
    // These it has read before.
    assertFalse(lines.contains("asked NCCL_DEBUG"), lines::toString);
    assertFalse(lines.contains("asked NCCL_ENV_PLUGIN"), lines::toString);
  }

  @Test
  void ncclUsesTheVariablesThatAreSet() throws Exception {
    String noInterface = "NCCL_SOCKET_IFNAME==nosuch0";
    assertTrue(run(Map.of(), noInterface).out().contains("result 5\n"));
    assertTrue(run(Map.of("NCCL_SOCKET_IFNAME", "=nosuch0")).out().contains("result 5\n"));
    assertTrue(
        run(Map.of("NCCL_SOCKET_IFNAME", "=nosuch0"), "NCCL_SOCKET_IFNAME==lo")
            .out()
            .contains("result 0\n"));
  }

  @Test
  void installationIsRefusedOnceNcclIsLoaded() throws Exception {
    assertEquals(
        "refused: an NcclEnvironment must be installed before libnccl.so.2 is loaded, but this"
            + " process has loaded it\n",
        run(Map.of(), "late").out());
  }

  @Test
  void pluginOfTheUserIsRespected() throws Exception {
    assertEquals(
        "refused: an NcclEnvironment cannot be installed: NCCL_ENV_PLUGIN already names"
            + " /opt/env.so, and NCCL loads one plugin of a kind\n",
        run(Map.of("NCCL_ENV_PLUGIN", "/opt/env.so")).out());
    // That of a parent process, whose file this one cannot use.
    assertTrue(
        run(Map.of("NCCL_ENV_PLUGIN", "/tmp/libnccl4j-plugin-1.so")).out().contains("result 0\n"));
  }

  @Test
  void childWithoutAPluginIgnoresTheInheritedName() throws Exception {
    String output = run(Map.of(), "parent").out();
    assertTrue(output.endsWith("inherited true\nresult 0\nchild 0\n"), output);
  }

  private static FinishedProgram run(Map<String, String> environment, String... arguments)
      throws Exception {
    List<String> command =
        FinishedProgram.java(
            "-Dio.nccl4j.nccl.library=" + Requirement.library("nccl"),
            EnvironmentUser.class.getName());
    command.addAll(List.of(arguments));
    FinishedProgram program = FinishedProgram.run(environment, command);
    assertEquals(0, program.status(), program::output);
    return program;
  }
}
