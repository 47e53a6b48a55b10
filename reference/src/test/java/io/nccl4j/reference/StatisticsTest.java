package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.Requirement;
import io.nccl4j.fixtures.programs.FinishedProgram;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Tests what JMX shows, each time in a process of its own, since it counts all of a process. */
@OnStandIn
class StatisticsTest {
  private static String run(List<String> options, String... arguments) throws Exception {
    Map<String, String> environment =
        Map.of(
            "NCCL4J_NCCL_LIBRARY", Requirement.library("nccl").toString(),
            "NCCL4J_CUDART_LIBRARY", Requirement.library("cudart").toString(),
            "NCCL4J_STANDIN_DEVICES", "2");
    List<String> command = new ArrayList<>(FinishedProgram.java());
    command.addAll(options);
    command.add(ObservedProgram.class.getName());
    command.addAll(List.of(arguments));
    FinishedProgram ended = FinishedProgram.run(environment, command);
    assertEquals(0, ended.status(), ended.output());
    return ended.out();
  }

  @ParameterizedTest
  @CsvSource({"reference, early", "reference, late", "nccl, early", "nccl, late"})
  void jmxShowsWhatTheProcessDoes(String backend, String attached) throws Exception {
    String device = backend.equals("nccl") ? "CUDA" : "HOST";
    assertEquals(
        """
        train: rank 0 of 2, DEVICE device 0, connected, 4 operations of 56 bytes
        train: rank 1 of 2, DEVICE device 1, connected, 4 operations of 56 bytes
        2 communicators, 2 streams, 2 graphs, 2 buffers of 32 bytes
        8 operations of 112 bytes, 4 waits, short, 0 time-outs, 0 failures
        dump_rank_0
        dump_rank_1
        folder is 'dumps'; it must be an absolute path
        late
        failed
        0 communicators, 0 streams, 0 graphs, 0 buffers of 0 bytes
        9 operations of 128 bytes, 6 waits, long, 1 time-outs, 1 failures
        removed
        """
            .replace("DEVICE", device),
        run(List.of(), backend, attached));
  }

  @Test
  void runtimeWithoutJmxRunsTheProgram() throws Exception {
    // Log4j needs java.desktop.
    List<String> withoutJmx = List.of("--limit-modules", "java.base,jdk.jfr,java.desktop");
    assertEquals("late\nfailed\n", run(withoutJmx, "nccl", "none"));
  }
}
