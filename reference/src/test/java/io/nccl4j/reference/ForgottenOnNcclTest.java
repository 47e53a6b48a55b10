package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.Requirement;
import io.nccl4j.fixtures.programs.FinishedProgram;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;
import org.junit.jupiter.api.Test;

/** Tests the reports of communicators and streams that a program forgets to close. */
@OnStandIn
class ForgottenOnNcclTest {
  @Test
  void forgottenOwnersAreReportedWithTheirCreator() throws Exception {
    List<String> reported = run(false, 5);
    assertEquals(2, count(reported, line -> line.startsWith("Communicator[forgetful: rank ")));
    assertEquals(3, count(reported, line -> line.startsWith("stream ")));
    assertEquals(4, count(reported, "made by use"::equals));
    assertEquals(1, count(reported, "made by forgetStream"::equals));
    assertEquals(10, reported.size(), reported::toString);
  }

  @Test
  void closedOwnersAreNotReported() throws Exception {
    List<String> reported = run(true, 1);
    assertEquals(1, count(reported, line -> line.startsWith("stream ")));
    assertEquals("made by forgetStream", reported.getLast());
    assertEquals(2, reported.size(), reported::toString);
  }

  private static long count(List<String> reported, Predicate<String> which) {
    return reported.stream().filter(which).count();
  }

  /** Runs the program in a child process and returns the reports that it printed. */
  private static List<String> run(boolean closes, int reports) throws Exception {
    FinishedProgram ended =
        FinishedProgram.run(
            Map.of(
                "NCCL4J_NCCL_LIBRARY", Requirement.library("nccl").toString(),
                "NCCL4J_CUDART_LIBRARY", Requirement.library("cudart").toString(),
                "NCCL4J_STANDIN_DEVICES", "2"),
            FinishedProgram.java(
                ForgottenOwners.class.getName(),
                Boolean.toString(closes),
                Integer.toString(reports)));
    assertEquals(0, ended.status(), ended.output());
    String prefix = "reported: ";
    return ended
        .out()
        .lines()
        .filter(line -> line.startsWith(prefix))
        .map(line -> line.substring(prefix.length()))
        .toList();
  }
}
