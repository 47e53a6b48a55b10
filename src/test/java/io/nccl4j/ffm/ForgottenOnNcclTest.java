package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.ChildJvm;
import io.nccl4j.ForgottenOwners;
import io.nccl4j.fixtures.libraries.OnStandIn;
import java.util.List;
import java.util.function.Predicate;
import org.junit.jupiter.api.Test;

/** Communicators and streams of the NCCL backend that a program forgets to close. */
@OnStandIn
class ForgottenOnNcclTest {
  @Test
  void forgottenOwnersAreReportedWithTheirMaker() throws Exception {
    List<String> said = run(false, 5);
    assertEquals(2, count(said, line -> line.startsWith("Communicator[forgetful: rank ")));
    assertEquals(3, count(said, line -> line.startsWith("stream ")));
    assertEquals(4, count(said, "made by use"::equals));
    assertEquals(1, count(said, "made by forgetStream"::equals));
    assertEquals(10, said.size(), said::toString);
  }

  @Test
  void closedOwnersAreNotReported() throws Exception {
    List<String> said = run(true, 1);
    assertEquals(1, count(said, line -> line.startsWith("stream ")));
    assertEquals("made by forgetStream", said.getLast());
    assertEquals(2, said.size(), said::toString);
  }

  private static long count(List<String> said, Predicate<String> which) {
    return said.stream().filter(which).count();
  }

  /** Runs the program, in a process of its own, and returns what it has seen reported. */
  private static List<String> run(boolean closes, int reports) throws Exception {
    String output =
        ChildJvm.run(
            ForgottenOwners.class, List.of(), Boolean.toString(closes), Integer.toString(reports));
    String mark = "reported: ";
    return output
        .lines()
        .filter(line -> line.startsWith(mark))
        .map(line -> line.substring(mark.length()))
        .toList();
  }
}
