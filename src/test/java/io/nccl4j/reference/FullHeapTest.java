package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.ChildJvm;
import io.nccl4j.FullHeap;
import java.util.List;
import org.junit.jupiter.api.Test;

/** A program that runs out of heap for a short time and continues. */
class FullHeapTest {
  @Test
  void operationWithoutMemoryFailsAndLaterOnesWork() throws Exception {
    List<String> lines = ChildJvm.run(RanksOnFullHeap.class, FullHeap.OPTIONS).lines().toList();
    assertEquals(5, lines.size(), lines::toString);
    assertTrue(lines.getFirst().startsWith("rank 0: "), lines::toString);
    assertTrue(lines.get(1).startsWith("rank 1: "), lines::toString);
    // If the call itself runs out of memory, the other rank times out.
    String error = "java.lang.OutOfMemoryError: Java heap space";
    assertTrue(lines.getFirst().contains(error) || lines.get(1).contains(error), lines::toString);
    for (String outcome : lines.subList(0, 2)) {
      assertTrue(outcome.contains(error) || outcome.contains(" did not call allGather"), outcome);
    }
    assertEquals(List.of("later: ok, 1 2", "later: ok, 1 2", "closed"), lines.subList(2, 5));
  }
}
