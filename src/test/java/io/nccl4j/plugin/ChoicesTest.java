package io.nccl4j.plugin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.Requirement;
import io.nccl4j.fixtures.programs.FinishedProgram;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** What NCCL chose, in the events of JFR; on the stand-in, which chooses as its own costs say. */
@OnStandIn
class ChoicesTest {
  private static FinishedProgram run(String choices, int kernels) throws Exception {
    List<String> command =
        FinishedProgram.java(
            "-Dio.nccl4j.nccl.library=" + Requirement.library("nccl"),
            "-Dio.nccl4j.cudart.library=" + Requirement.library("cudart"),
            "-Dio.nccl4j.nccl.choices=" + choices,
            ChoicesUser.class.getName(),
            String.valueOf(kernels));
    return FinishedProgram.run(Map.of("NCCL4J_STANDIN_KERNEL_NS", "20000000"), command);
  }

  private static void assertRecorded(String choices, String expected) throws Exception {
    int kernels = (int) expected.lines().filter(line -> line.endsWith(", kernel")).count();
    FinishedProgram program = run(choices, kernels);
    assertEquals(0, program.status(), program::output);
    assertEquals(expected, PluginsTest.said(program), program::output);
  }

  @Test
  void operationsHaveWhatNcclChoseAndHowLongTheirKernelsRan() throws Exception {
    assertRecorded(
        "kernels",
        """
        allReduce 1 TREE LL 2, kernel
        reduce 2 RING LL128 2, kernel
        allReduce 3 TREE LL 2, kernel
        allReduce 5 RING LL128 2, kernel
        send 1 null null 1, kernel
        allToAll 6 null null 0, no kernel
        """);
  }

  @Test
  void kernelsAreNotMeasuredUnlessAskedFor() throws Exception {
    assertRecorded(
        "true",
        """
        allReduce 1 TREE LL 2, no kernel
        reduce 2 RING LL128 2, no kernel
        allReduce 3 TREE LL 2, no kernel
        allReduce 5 RING LL128 2, no kernel
        send 1 null null 1, no kernel
        allToAll 6 null null 0, no kernel
        """);
  }

  @Test
  void withoutProfilerNothingIsKnown() throws Exception {
    FinishedProgram program = run("false", 0);
    assertEquals(0, program.status(), program::output);
    assertTrue(
        PluginsTest.said(program).lines().allMatch(line -> line.endsWith("null null 0, no kernel")),
        program::output);
  }

  @Test
  void otherValueIsRefused() throws Exception {
    FinishedProgram program = run("yes", 0);
    assertEquals(1, program.status(), program::output);
    assertTrue(
        program
            .output()
            .contains("io.nccl4j.nccl.choices is 'yes'; it must be true, kernels or false"),
        program::output);
  }
}
