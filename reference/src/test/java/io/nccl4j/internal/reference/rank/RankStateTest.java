package io.nccl4j.internal.reference.rank;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.nccl4j.DataType;
import io.nccl4j.Operation;
import io.nccl4j.internal.reference.collective.Call;
import io.nccl4j.internal.reference.reduce.ReductionOp;
import io.nccl4j.spi.BufferMemory;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import org.junit.jupiter.api.Test;

class RankStateTest {
  /** More than the number of collectives that a state keeps. */
  private static final int LATER = 9;

  private static void enter(RankState state, int count) {
    BufferMemory memory =
        new BufferMemory(MemorySegment.ofArray(new int[count]), DataType.INT32, count);
    state.enter(
        Call.of(Operation.ALL_REDUCE, memory, memory, count, ReductionOp.standard(0), -1), true);
  }

  private static RankState entered(int rank, int count) {
    RankState state = new RankState(rank);
    enter(state, count);
    return state;
  }

  /** A message whose sender enters later collectives as soon as the first bytes are written. */
  private static final class Interrupted extends ByteArrayOutputStream {
    private final RankState sender;
    private int left = LATER;

    Interrupted(RankState sender) {
      this.sender = sender;
    }

    @Override
    public synchronized void write(byte[] bytes, int offset, int length) {
      super.write(bytes, offset, length);
      for (; left > 0; left--) {
        enter(sender, 2);
      }
    }
  }

  @Test
  void stateWrittenWhileItAdvancesIsThatOfOneMoment() throws IOException {
    RankState sender = entered(1, 1);
    Interrupted message = new Interrupted(sender);
    sender.write(new DataOutputStream(message), sender.presence());
    assertEquals(1 + LATER, sender.entered());

    RankState received = new RankState(1);
    received.read(new DataInputStream(new ByteArrayInputStream(message.toByteArray())));
    assertEquals(1, received.entered());
    assertNull(received.differenceFrom(entered(0, 1)));
    assertEquals(
        new RankState.Difference(
            1,
            Operation.ALL_REDUCE,
            "collective number 1 differs between ranks: rank 0 called allReduce(count 3, INT32,"
                + " sum), rank 1 called allReduce(count 1, INT32, sum)"),
        received.differenceFrom(entered(0, 3)));
  }
}
