package io.nccl4j.adapters;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.junit.jupiter.api.Test;

/** The README's program runs as shown. */
class AllReduceTensorTest {
  @Test
  void programOfTheReadmeSumsOverTwoRanks() throws Exception {
    ReadmeProgram.checkShown(AllReduceTensor.class);
    assertEquals(
        List.of("rank 0: 9.0", "rank 1: 9.0"),
        ReadmeProgram.run(() -> AllReduceTensor.main(new String[0])));
  }
}
