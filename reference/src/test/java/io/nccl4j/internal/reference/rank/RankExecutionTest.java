package io.nccl4j.internal.reference.rank;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.DataType;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.Operation;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.reference.bootstrap.RankMap;
import io.nccl4j.internal.reference.bootstrap.Secret;
import io.nccl4j.internal.reference.collective.AllReduceAlgorithm;
import io.nccl4j.internal.reference.collective.Call;
import io.nccl4j.internal.reference.reduce.ReductionOp;
import io.nccl4j.schedule.Layout;
import io.nccl4j.spi.BufferMemory;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Advances the executions of two ranks of this process in one thread, in a chosen order. */
class RankExecutionTest {
  private final IdleStrategy idleStrategy = new IdleStrategy(Thread.currentThread());

  private static CommunicatorState twoRanks() {
    ProcessEndpoint here = new ProcessEndpoint();
    RankMap rankMap = RankMap.of(Secret.random(), List.of(here.address(), here.address()));
    return new CommunicatorState(
        here, rankMap, new RankOptions(AllReduceAlgorithm.DIRECT, Layout.defaults(), true, ""));
  }

  private static MemorySegment ints(int... values) {
    return Arena.ofAuto().allocateFrom(ValueLayout.JAVA_INT, values);
  }

  private static RankExecution allReduce(HostedRank hostedRank, MemorySegment data) {
    long count = data.byteSize() / Integer.BYTES;
    BufferMemory memory = new BufferMemory(data, DataType.INT32, count);
    Call call = Call.of(Operation.ALL_REDUCE, memory, memory, count, ReductionOp.standard(0), -1);
    RankExecution execution = new RankExecution(hostedRank, List.of(call));
    execution.takeTurn();
    return execution;
  }

  /**
   * The abort ends the wait of the second operation before the first one notices the abort. The
   * first one's memory is still accessed then: its own end, not that of the second, prevents that.
   */
  @Test
  void abortedWaitForATurnLeavesTheRunningOperationAlone() {
    CommunicatorState communicator = twoRanks();
    MemorySegment data = ints(1, 2, 3);
    MemorySegment peersData = ints(10, 20, 30);
    RankExecution running = allReduce(communicator.hostedRank(1), data);
    RankExecution waiting = allReduce(communicator.hostedRank(1), ints(0));
    // So few elements are all part of rank 0.
    RankExecution peers = allReduce(communicator.hostedRank(0), peersData);

    running.begin(idleStrategy);
    assertTrue(running.advance());
    communicator.hostedRank(1).abort();
    waiting.begin(idleStrategy);
    assertInstanceOf(CommunicatorAbortedException.class, waiting.end());

    peers.begin(idleStrategy);
    boolean moved = true;
    while (moved) {
      moved = peers.advance();
    }
    assertArrayEquals(new int[] {11, 22, 33}, peersData.toArray(ValueLayout.JAVA_INT));
    assertArrayEquals(new int[] {11, 22, 33}, data.toArray(ValueLayout.JAVA_INT));
    running.advance();
    assertInstanceOf(CommunicatorAbortedException.class, running.end());
    peers.checkForFailure(1);
    assertInstanceOf(NcclRemoteException.class, peers.end());
  }
}
