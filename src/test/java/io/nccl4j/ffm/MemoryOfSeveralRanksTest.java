package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorList;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.nccl.NcclBackend;
import java.lang.foreign.MemorySegment;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * Tests that freeing and pinning memory does not block while one of two ranks on the same device
 * waits for the other. CUDA would wait for the kernel of the first rank, and so for the second.
 */
@OnStandIn
class MemoryOfSeveralRanksTest {
  private static final int DEVICE = 7;
  private static final long SOON_NANOS = 10_000_000_000L;

  @BeforeEach
  void allowTwoRanksOnOneDevice() {
    StandIn.reset();
    StandIn.connect(false); // A collective of one rank blocks in its stream, not in its call.
    StandIn.setEnvironment("NCCL_MULTI_RANK_GPU_ENABLE", "1");
  }

  @AfterEach
  void allowOne() {
    StandIn.setEnvironment("NCCL_MULTI_RANK_GPU_ENABLE", null);
    StandIn.reset();
  }

  @Test
  void bufferCloseDoesNotWaitForMissingPeer() {
    try (TwoRanks two = new TwoRanks()) {
      Buffer spare = two.backend.newBuffer(DEVICE, DataType.INT32, 64);
      Buffer registrable =
          NcclBackend.of(two.backend).newRegistrableBuffer(DEVICE, DataType.INT32, 64);
      Buffer pinned = two.backend.newPinnedBuffer(DataType.INT32, 64);
      two.allReduceOf(0);
      long start = System.nanoTime();
      spare.close();
      registrable.close();
      pinned.close();
      assertTrue(System.nanoTime() - start < SOON_NANOS, "the close waited for the device");
      two.allReduceOf(1);
      two.checkSum();
    }
  }

  @Test
  void closedRankDoesNotWaitForStuckPeer() {
    long memory = StandIn.live("memory");
    long pinned = StandIn.live("pinned");
    try (Backend backend = NcclBackend.open()) {
      CommunicatorList ranks = backend.newCommunicators(DEVICE, DEVICE - 1);
      Stream stream = ranks.get(0).newStream();
      Stream stuck = ranks.get(1).newStream();
      Buffer reduced = ranks.get(1).newBuffer(DataType.INT32, 1);
      Buffer own = ranks.get(0).newBuffer(DataType.INT32, 1);
      Buffer registrable = NcclBackend.of(backend).newRegistrableBuffer(DEVICE, DataType.INT32, 1);
      Buffer host = backend.newPinnedBuffer(DataType.INT32, 1);
      own.copyFromAsync(MemorySegment.ofArray(new int[] {1}), stream);
      stream.synchronize();
      ranks.get(1).allReduce(reduced, reduced, ReduceOp.SUM, stuck);
      long start = System.nanoTime();
      ranks.get(0).close();
      stream.close();
      List.of(own, registrable, host).forEach(Buffer::close);
      assertTrue(System.nanoTime() - start < SOON_NANOS, "the close waited for the peer's kernel");
      ranks.get(1).abort();
      stuck.close();
      reduced.close();
    }
    assertEquals(memory, StandIn.live("memory"));
    assertEquals(pinned, StandIn.live("pinned"));
  }

  @Test
  void memoryOfSameSizeIsReused() {
    try (TwoRanks two = new TwoRanks()) {
      Buffer first = two.backend.newBuffer(DEVICE, DataType.INT32, 1000);
      long address = first.address();
      first.close();
      long calls = StandIn.calls("cudaMalloc");
      Buffer larger = two.backend.newBuffer(DEVICE, DataType.INT32, 1001);
      assertNotEquals(address, larger.address());
      Buffer again = two.backend.newBuffer(DEVICE, DataType.FLOAT32, 1000);
      assertEquals(address, again.address());
      assertEquals(calls + 1, StandIn.calls("cudaMalloc"), "the larger one");
      again.close();
      larger.close();
    }
  }

  @Test
  void retainedMemoryIsFreedWhenTheRanksClose() {
    long before = StandIn.live("memory");
    long pinned = StandIn.live("pinned");
    try (TwoRanks two = new TwoRanks()) {
      long open = StandIn.live("memory");
      two.backend.newBuffer(DEVICE, DataType.INT32, 1000).close();
      NcclBackend.of(two.backend).newRegistrableBuffer(DEVICE, DataType.INT32, 1000).close();
      assertEquals(open + 2, StandIn.live("memory"));
    }
    assertEquals(before, StandIn.live("memory"));
    assertEquals(pinned, StandIn.live("pinned"));
  }

  @Test
  void retainedMemoryIsFreedWhenMemoryIsShort() {
    try (TwoRanks two = new TwoRanks()) {
      two.backend.newBuffer(DEVICE, DataType.INT8, 3 << 20).close();
      StandIn.setMemory(4 << 20);
      try (Buffer other = two.backend.newBuffer(DEVICE, DataType.INT8, 2 << 20)) {
        assertEquals(2 << 20, other.byteSize());
      }
    }
  }

  @Test
  void retainedMemoryOfOtherKindIsFreedWhenMemoryIsShort() {
    try (TwoRanks two = new TwoRanks()) {
      NcclBackend.of(two.backend).newRegistrableBuffer(DEVICE, DataType.INT8, 3 << 20).close();
      StandIn.setMemory(4 << 20);
      try (Buffer other = two.backend.newBuffer(DEVICE, DataType.INT8, 2 << 20)) {
        assertEquals(2 << 20, other.byteSize());
      }
    }
  }

  @Test
  void splitWithoutColorRetainsNoMemory() {
    long before = StandIn.live("memory");
    try (TwoRanks two = new TwoRanks()) {
      Group.run(() -> two.ranks.forEach(Communicator::splitNoColor));
    }
    try (Backend backend = NcclBackend.open()) {
      backend.newBuffer(DEVICE, DataType.INT32, 1000).close();
    }
    assertEquals(before, StandIn.live("memory"));
  }

  @Test
  void memoryOfASingleRankIsFreedAtOnce() {
    try (Backend backend = NcclBackend.open();
        Communicator single = backend.newCommunicators(DEVICE).getFirst()) {
      long before = StandIn.live("memory");
      Buffer buffer = single.newBuffer(DataType.INT32, 1000);
      assertEquals(before + 1, StandIn.live("memory"));
      buffer.close();
      assertEquals(before, StandIn.live("memory"));
    }
  }

  @Test
  void firstUploadDoesNotWaitForMissingPeer() {
    try (TwoRanks two = new TwoRanks()) {
      Stream copying = two.ranks.get(1).newStream();
      Buffer target = two.backend.newBuffer(DEVICE, DataType.INT32, 1);
      two.allReduceOf(0);
      long start = System.nanoTime();
      target.copyFromAsync(MemorySegment.ofArray(new int[] {5}), copying);
      int[] value = new int[1];
      target.copyTo(MemorySegment.ofArray(value), copying);
      copying.close();
      assertEquals(5, value[0]);
      assertTrue(System.nanoTime() - start < SOON_NANOS, "staging waited for the device");
      two.allReduceOf(1);
      two.checkSum();
      target.close();
    }
  }

  /** Two ranks on one device, each with a stream and a value. */
  private static final class TwoRanks implements AutoCloseable {
    private final Backend backend = NcclBackend.open();
    private final List<Communicator> ranks = backend.newCommunicators(DEVICE, DEVICE);
    private final List<Stream> streams = ranks.stream().map(Communicator::newStream).toList();
    private final List<Buffer> values =
        ranks.stream().map(rank -> rank.newBuffer(DataType.INT32, 1)).toList();

    TwoRanks() {
      for (int rank = 0; rank < 2; rank++) {
        values.get(rank).fill((byte) (rank + 1), streams.get(rank));
      }
    }

    void allReduceOf(int rank) {
      Buffer value = values.get(rank);
      Pair.onOwnThread(
          () -> ranks.get(rank).allReduce(value, value, ReduceOp.SUM, streams.get(rank)));
    }

    void checkSum() {
      for (int rank = 0; rank < 2; rank++) {
        int[] sum = new int[1];
        values.get(rank).copyTo(MemorySegment.ofArray(sum), streams.get(rank));
        assertEquals(0x03030303, sum[0]);
      }
    }

    @Override
    public void close() {
      ranks.forEach(Communicator::close);
      streams.forEach(Stream::close);
      values.forEach(Buffer::close);
      backend.close();
    }
  }
}
