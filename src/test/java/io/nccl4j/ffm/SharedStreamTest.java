package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Tests that two ranks on one GPU, which NCCL can allow, may not share a stream in a group. */
@OnStandIn
class SharedStreamTest {
  private static final String SEVERAL_RANKS = "NCCL_MULTI_RANK_GPU_ENABLE";

  @BeforeEach
  void allowTwoRanks() throws Throwable {
    StandIn.reset();
    try (Arena arena = Arena.ofConfined()) {
      MethodHandle set =
          function("setenv", ValueLayout.ADDRESS, ValueLayout.ADDRESS, ValueLayout.JAVA_INT);
      assertEquals(
          0, (int) set.invoke(arena.allocateFrom(SEVERAL_RANKS), arena.allocateFrom("1"), 1));
    }
  }

  @AfterEach
  void allowOneRank() throws Throwable {
    try (Arena arena = Arena.ofConfined()) {
      MethodHandle unset = function("unsetenv", ValueLayout.ADDRESS);
      assertEquals(0, (int) unset.invoke(arena.allocateFrom(SEVERAL_RANKS)));
    }
  }

  @SuppressWarnings("restricted") // Java cannot change its own environment.
  private static MethodHandle function(String name, MemoryLayout... arguments) {
    Linker linker = Linker.nativeLinker();
    return linker.downcallHandle(
        linker.defaultLookup().findOrThrow(name),
        FunctionDescriptor.of(ValueLayout.JAVA_INT, arguments));
  }

  @Test
  void groupOfTwoRanksOnOneStreamIsRefused() {
    try (Backend backend = Backend.nccl()) {
      List<Communicator> ranks = backend.newCommunicators(0, 0);
      try (Stream shared = backend.newStream(0);
          Stream own = backend.newStream(0);
          Buffer one = backend.newBuffer(0, DataType.INT32, 1);
          Buffer two = backend.newBuffer(0, DataType.INT32, 1)) {
        one.copyFromAsync(MemorySegment.ofArray(new int[] {10}), shared);
        two.copyFromAsync(MemorySegment.ofArray(new int[] {20}), own);
        String refused =
            assertThrows(
                    IllegalArgumentException.class,
                    () -> Group.run(() -> reduce(ranks, one, shared, two, shared)))
                .getMessage();
        for (Object named : List.of(ranks.get(0), ranks.get(1), shared)) {
          assertTrue(refused.contains(named.toString()), refused);
        }
        assertEquals(0, StandIn.calls("ncclGroupStart"));
        assertEquals(0, StandIn.calls("ncclAllReduce"));
        Group.run(() -> reduce(ranks, one, shared, two, own));
        int[] sum = new int[1];
        one.copyTo(MemorySegment.ofArray(sum), shared);
        assertEquals(30, sum[0]);
        two.copyTo(MemorySegment.ofArray(sum), own);
        assertEquals(30, sum[0]);
      }
      ranks.forEach(Communicator::abort);
    }
  }

  private static void reduce(
      List<Communicator> ranks, Buffer one, Stream first, Buffer two, Stream second) {
    ranks.get(0).allReduce(one, one, ReduceOp.SUM, first);
    ranks.get(1).allReduce(two, two, ReduceOp.SUM, second);
  }
}
