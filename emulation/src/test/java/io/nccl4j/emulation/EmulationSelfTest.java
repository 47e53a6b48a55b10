package io.nccl4j.emulation;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.fixtures.Checkout;
import io.nccl4j.fixtures.programs.FinishedProgram;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Runs the emulation's own tests, which are in C and need no NCCL. */
@Timeout(600)
class EmulationSelfTest {
  @Test
  void selfTestsPass() throws Exception {
    String build = Checkout.ROOT.resolve("emulation/build").toString();
    FinishedProgram program = FinishedProgram.run(Map.of(), List.of(build, "--selftest"));
    assertEquals(0, program.status(), program::output);
  }
}
