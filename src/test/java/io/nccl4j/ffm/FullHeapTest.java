package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.ChildJvm;
import io.nccl4j.FullHeap;
import io.nccl4j.fixtures.libraries.OnStandIn;
import java.util.List;
import org.junit.jupiter.api.Test;

/** A program on the stand-in that runs out of heap for a moment and goes on. */
@OnStandIn
class FullHeapTest {
  @Test
  void stageEndsAndAbortCanBeRepeatedAfterMemoryWasShort() throws Exception {
    assertEquals(
        List.of(
            "stage: complete",
            "abort: java.lang.OutOfMemoryError: Java heap space",
            "again: null",
            "communicators: 0"),
        ChildJvm.run(StageOnFullHeap.class, FullHeap.OPTIONS).lines().toList());
  }
}
