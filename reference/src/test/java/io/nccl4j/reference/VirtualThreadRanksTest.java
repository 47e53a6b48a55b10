package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Virtual threads may drive ranks of the reference backend. */
class VirtualThreadRanksTest {
  private static final int RANKS = 4;
  private static final int ROUNDS = 50;

  @Test
  void ranksOnVirtualThreadsReduceAndExchange() throws Exception {
    try (Backend backend = Backend.reference(RANKS)) {
      UniqueId id = backend.newUniqueId();
      List<FutureTask<int[]>> tasks = new ArrayList<>();
      for (int rank = 0; rank < RANKS; rank++) {
        int r = rank;
        FutureTask<int[]> task = new FutureTask<>(() -> run(backend, id, r));
        Thread.ofVirtual().start(task);
        tasks.add(task);
      }
      for (int rank = 0; rank < RANKS; rank++) {
        int last = (rank + RANKS - 1) % RANKS;
        // Each round adds 1 + 2 + 3 + 4; the exchange moves the rank before.
        assertArrayEquals(new int[] {10 * ROUNDS, last}, tasks.get(rank).get(40, TimeUnit.SECONDS));
      }
    }
  }

  private static int[] run(Backend backend, UniqueId id, int rank) {
    CommunicatorConfig config = CommunicatorConfig.defaults().withDevice(rank);
    try (Communicator comm = backend.newCommunicator(id, RANKS, rank, config);
        Stream stream = comm.newStream();
        Buffer value = comm.newBuffer(DataType.INT32, 1);
        Buffer own = comm.newBuffer(DataType.INT32, 1);
        Buffer other = comm.newBuffer(DataType.INT32, 1)) {
      int total = 0;
      int[] got = new int[1];
      for (int round = 0; round < ROUNDS; round++) {
        value.copyFromAsync(MemorySegment.ofArray(new int[] {rank + 1}), stream);
        comm.allReduce(value, value, ReduceOp.SUM, stream);
        value.copyTo(MemorySegment.ofArray(got), stream);
        total += got[0];
      }
      own.copyFromAsync(MemorySegment.ofArray(new int[] {rank}), stream);
      Group.run(
          () -> {
            comm.send(own, (rank + 1) % RANKS, stream);
            comm.recv(other, (rank + RANKS - 1) % RANKS, stream);
          });
      other.copyTo(MemorySegment.ofArray(got), stream);
      return new int[] {total, got[0]};
    }
  }
}
