package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.ChildJvm;
import io.nccl4j.FullHeap;
import io.nccl4j.fixtures.libraries.OnStandIn;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Tests that a program on the stand-in recovers from an exhausted heap. */
@OnStandIn
class FullHeapTest {
  @Test
  void stageEndsAndAbortIsRepeatableAfterHeapWasFull() throws Exception {
    assertEquals(
        List.of(
            "stage: complete",
            "abort: java.lang.OutOfMemoryError: Java heap space",
            "again: null",
            "communicators: 0"),
        ChildJvm.run(StageOnFullHeap.class, FullHeap.OPTIONS).lines().toList());
  }
}
