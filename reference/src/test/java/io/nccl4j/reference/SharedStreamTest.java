package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Two ranks on one device: in a group, each needs its own stream, as on GPUs. */
class SharedStreamTest {
  @Test
  void twoRanksOnOneStreamAreRefusedAndTwoStreamsAreNot() {
    try (Backend backend = Backend.reference(1)) {
      List<Communicator> ranks = backend.newCommunicators(0, 0);
      check(backend, ranks);
      List<Communicator> children = new ArrayList<>();
      Group.run(() -> ranks.forEach(rank -> children.add(rank.split(3, 0))));
      check(backend, children);
      children.forEach(Communicator::abort);
      ranks.forEach(Communicator::abort);
    }
  }

  @Test
  void twoCommunicatorsOnOneStreamAreNotTwoRanks() {
    try (Backend backend = Backend.reference(1);
        Stream stream = backend.newStream(0);
        Buffer value = backend.newBuffer(0, DataType.INT32, 1);
        Buffer same = backend.newBuffer(0, DataType.INT32, 1)) {
      Communicator one = backend.newCommunicators(0).getFirst();
      Communicator another = backend.newCommunicators(0).getFirst();
      value.segment().set(ValueLayout.JAVA_INT, 0, 5);
      same.segment().set(ValueLayout.JAVA_INT, 0, 6);
      Group.run(
          () -> {
            one.allReduce(value, value, ReduceOp.SUM, stream);
            another.allReduce(same, same, ReduceOp.SUM, stream);
          });
      stream.synchronize();
      assertEquals(5, value.segment().get(ValueLayout.JAVA_INT, 0));
      assertEquals(6, same.segment().get(ValueLayout.JAVA_INT, 0));
      one.close();
      another.close();
    }
  }

  private static void check(Backend backend, List<Communicator> ranks) {
    try (Stream shared = backend.newStream(0);
        Stream own = backend.newStream(0);
        Buffer zero = backend.newBuffer(0, DataType.INT32, 1);
        Buffer one = backend.newBuffer(0, DataType.INT32, 1)) {
      zero.copyFromAsync(MemorySegment.ofArray(new int[] {10}), shared);
      one.copyFromAsync(MemorySegment.ofArray(new int[] {20}), shared);
      shared.synchronize();
      IllegalArgumentException refused =
          assertThrows(
              IllegalArgumentException.class,
              () ->
                  Group.run(
                      () -> {
                        ranks.get(0).allReduce(zero, zero, ReduceOp.SUM, shared);
                        ranks.get(1).allReduce(one, one, ReduceOp.SUM, shared);
                      }));
      assertEquals(
          "the group has calls of "
              + ranks.get(0)
              + " and of "
              + ranks.get(1)
              + ", two ranks of one communicator, on one stream, where the first would wait for the second indefinitely; each rank needs its own stream: "
              + shared,
          refused.getMessage());
      Group.run(
          () -> {
            ranks.get(0).allReduce(zero, zero, ReduceOp.SUM, shared);
            ranks.get(1).allReduce(one, one, ReduceOp.SUM, own);
          });
      int[] sums = new int[2];
      zero.copyTo(MemorySegment.ofArray(sums).asSlice(0, 4), shared);
      one.copyTo(MemorySegment.ofArray(sums).asSlice(4, 4), own);
      assertArrayEquals(new int[] {30, 30}, sums);
    }
  }
}
