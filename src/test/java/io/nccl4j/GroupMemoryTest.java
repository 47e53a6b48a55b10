package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.Seed;
import io.nccl4j.fixtures.libraries.OnStandIn;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Tests the detection of conflicting memory; the contract suite tests which memory counts. */
@OnStandIn
class GroupMemoryTest {
  private static final int ELEMENTS = 64;

  private Backend backend;
  private Communicator comm;
  private Stream stream;
  private Buffer memory;

  @BeforeEach
  void open() {
    backend = Backend.nccl();
    comm = backend.newCommunicators(0).getFirst();
    stream = comm.newStream();
    memory = comm.newBuffer(DataType.INT32, ELEMENTS);
  }

  @AfterEach
  void close() {
    memory.close();
    comm.close();
    stream.close();
    backend.close();
  }

  private Call call(Operation operation, Buffer send, Buffer recv) {
    // The peer is another rank: a receive from the rank itself may be in place.
    return Call.of(operation, comm.core(), send, recv, 1, ReduceOp.SUM, 1, stream);
  }

  private Buffer randomSlice(SplittableRandom random) {
    int from = random.nextInt(ELEMENTS);
    return memory.slice(from, random.nextInt(Math.min(4, ELEMENTS - from + 1)));
  }

  private Call randomCall(SplittableRandom random) {
    Buffer one = randomSlice(random);
    Buffer other = randomSlice(random);
    return switch (random.nextInt(4)) {
      case 0 -> call(Operation.SEND, one, null);
      case 1 -> call(Operation.RECV, null, one);
      case 2 -> call(Operation.ALL_REDUCE, one, one);
      default ->
          overlap(one, other)
              ? call(Operation.SEND, one, null)
              : call(Operation.ALL_REDUCE, one, other);
    };
  }

  private static boolean overlap(Buffer one, Buffer other) {
    return one != null
        && other != null
        && Math.max(one.address(), other.address())
            < Math.min(one.address() + one.byteSize(), other.address() + other.byteSize());
  }

  private static boolean conflict(Call one, Call other) {
    return overlap(one.writes(), other.writes())
        || overlap(one.writes(), other.reads())
        || overlap(one.reads(), other.writes());
  }

  private static boolean conflict(List<Call> calls) {
    for (int i = 0; i < calls.size(); i++) {
      for (int j = 0; j < i; j++) {
        if (conflict(calls.get(i), calls.get(j))) {
          return true;
        }
      }
    }
    return false;
  }

  private static String described(List<Call> calls) {
    return calls.stream()
        .map(call -> call.method() + " " + call.reads() + " " + call.writes())
        .toList()
        .toString();
  }

  private static boolean refused(List<Call> calls) {
    try {
      GroupMemory.check(calls);
      return false;
    } catch (IllegalArgumentException e) {
      return true;
    }
  }

  @Test
  void conflictsMatchPairwiseComparison() {
    SplittableRandom random = Seed.random("GroupMemoryTest");
    int[] found = new int[2];
    for (int round = 0; round < 20_000; round++) {
      List<Call> calls = new ArrayList<>();
      for (int count = 2 + random.nextInt(6); count > 0; count--) {
        calls.add(randomCall(random));
      }
      boolean expected = conflict(calls);
      assertEquals(expected, refused(calls), () -> described(calls) + Seed.hint());
      found[expected ? 1 : 0]++;
    }
    assertTrue(Math.min(found[0], found[1]) > 1000, found[0] + " accepted, " + found[1]);
  }
}
