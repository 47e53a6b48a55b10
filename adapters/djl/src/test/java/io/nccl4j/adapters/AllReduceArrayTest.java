package io.nccl4j.adapters;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.junit.jupiter.api.Test;

/** The README's program runs as shown. */
class AllReduceArrayTest {
  @Test
  void programOfTheReadmeSumsOverTwoRanks() throws Exception {
    ReadmeProgram.checkShown(AllReduceArray.class);
    assertEquals(
        List.of("rank 0: [1.0, 10.0, 2.0]", "rank 1: [1.0, 10.0, 2.0]"),
        ReadmeProgram.run(() -> AllReduceArray.main(new String[0])));
  }
}
