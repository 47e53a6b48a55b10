package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.ChildJvm;
import io.nccl4j.FullHeap;
import java.util.List;
import org.junit.jupiter.api.Test;

/** A program that runs out of heap for a moment and goes on. */
class FullHeapTest {
  @Test
  void operationOfAWorkerWithoutMemoryFailsAndLaterOnesWork() throws Exception {
    List<String> lines = ChildJvm.run(RanksOnFullHeap.class, FullHeap.OPTIONS).lines().toList();
    assertEquals(5, lines.size(), lines::toString);
    assertTrue(lines.getFirst().startsWith("rank 0: "), lines::toString);
    assertTrue(lines.get(1).startsWith("rank 1: "), lines::toString);
    // A rank whose own worker found memory is notified of the other one's failure.
    for (String outcome : lines.subList(0, 2)) {
      assertTrue(outcome.contains("java.lang.OutOfMemoryError: Java heap space"), outcome);
    }
    assertEquals(List.of("later: ok, 1 2", "later: ok, 1 2", "closed"), lines.subList(2, 5));
  }
}
