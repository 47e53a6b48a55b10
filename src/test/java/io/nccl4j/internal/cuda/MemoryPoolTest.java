package io.nccl4j.internal.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.CudaException;
import io.nccl4j.NcclTimeoutException;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Test;

/** Tests {@link MemoryPool} with functions that allocate numbers instead of memory. */
class MemoryPoolTest {
  private static final Duration SHORT = Duration.ofMillis(200);
  private static final Duration LONG = Duration.ofSeconds(20);

  private static final class Numbers extends MemoryPool {
    // Each test has devices of its own, since all kept memory is in one list.
    private static final AtomicInteger DEVICES = new AtomicInteger();
    final int device = DEVICES.getAndAdd(2);
    final AtomicInteger allocations = new AtomicInteger();
    final ConcurrentLinkedQueue<Long> freed = new ConcurrentLinkedQueue<>();
    final CountDownLatch open;
    volatile CountDownLatch freeing = new CountDownLatch(0);
    volatile long capacity = Long.MAX_VALUE;

    Numbers(boolean keeps, CountDownLatch open, Duration timeout) {
      super("cudaMalloc", "cudaFree", true, () -> keeps, timeout);
      this.open = open;
    }

    @Override
    void enter(int device) {
      // There is no device.
    }

    @Override
    protected MemorySegment allocate(long bytes) {
      await(open);
      if (allocations.get() - freed.size() >= capacity) {
        throw new CudaException("cudaMalloc", 2, "cudaErrorMemoryAllocation", "out of memory");
      }
      return MemorySegment.ofAddress(allocations.incrementAndGet());
    }

    private static void await(CountDownLatch latch) {
      try {
        assertTrue(latch.await(20, TimeUnit.SECONDS));
      } catch (InterruptedException e) {
        throw new IllegalStateException(e);
      }
    }

    @Override
    protected void free(MemorySegment memory) {
      await(freeing);
      freed.add(memory.address());
    }
  }

  private static Numbers numbers(boolean keeps) {
    return new Numbers(keeps, new CountDownLatch(0), LONG);
  }

  @Test
  void keptMemoryServesTheSameSizeAndDeviceOnly() {
    Numbers memory = numbers(true);
    MemoryPool.Piece piece = memory.take(memory.device, 100);
    MemoryPool.put(piece);
    assertEquals(2, memory.take(memory.device + 1, 100).memory().address());
    assertEquals(3, memory.take(memory.device, 101).memory().address());
    assertSame(piece, memory.take(memory.device, 100));
    assertEquals(4, memory.take(memory.device, 100).memory().address());
    assertEquals(List.of(), List.copyOf(memory.freed));
  }

  @Test
  void memoryIsFreedImmediatelyIfNotKept() {
    Numbers memory = numbers(false);
    MemoryPool.put(memory.take(memory.device, 100));
    assertEquals(List.of(1L), List.copyOf(memory.freed));
    assertEquals(2, memory.take(memory.device, 100).memory().address());
  }

  @Test
  void keptMemoryIsFreedWhenAnAllocationFails() {
    Numbers memory = numbers(true);
    memory.capacity = 1;
    MemoryPool.put(memory.take(memory.device, 100));
    assertEquals(2, memory.take(memory.device, 200).memory().address());
    assertEquals(List.of(1L), List.copyOf(memory.freed));
    CudaException shortage =
        assertThrows(CudaException.class, () -> memory.take(memory.device, 300));
    assertEquals("cudaErrorMemoryAllocation", shortage.errorName());
  }

  @Test
  void lateAllocationIsKept() throws Exception {
    CountDownLatch open = new CountDownLatch(1);
    Numbers memory = new Numbers(true, open, SHORT);
    NcclTimeoutException late =
        assertThrows(NcclTimeoutException.class, () -> memory.take(memory.device, 100));
    assertTrue(late.getMessage().contains("cudaMalloc"), late.getMessage());
    assertTrue(late.getMessage().contains("device " + memory.device + ";"), late.getMessage());
    open.countDown();
    MemoryPool.put(takeUntilInTime(memory));
    awaitAllocations(memory, 2);
    long end = System.nanoTime() + LONG.toNanos();
    while (memory.freed.size() < memory.allocations.get() && System.nanoTime() < end) {
      MemoryPool.freeKept();
    }
    assertEquals(memory.allocations.get(), memory.freed.size());
  }

  @Test
  void lateAllocationIsFreedIfNotKept() throws Exception {
    CountDownLatch open = new CountDownLatch(1);
    Numbers memory = new Numbers(false, open, SHORT);
    assertThrows(NcclTimeoutException.class, () -> memory.take(memory.device, 100));
    open.countDown();
    long end = System.nanoTime() + LONG.toNanos();
    while (memory.freed.isEmpty() && System.nanoTime() < end) {
      Thread.sleep(1);
    }
    assertEquals(List.of(1L), List.copyOf(memory.freed));
  }

  @Test
  void memoryIsKeptWhileAFreeIsLateAndFreedAfterwards() throws Exception {
    Numbers memory = numbers(false);
    List<MemoryPool.Piece> pieces =
        List.of(
            memory.take(memory.device, 1),
            memory.take(memory.device, 2),
            memory.take(memory.device, 3));
    CountDownLatch idle = new CountDownLatch(1);
    memory.freeing = idle;
    MemoryPool.put(pieces.get(0));
    long start = System.nanoTime();
    MemoryPool.put(pieces.get(1));
    MemoryPool.put(pieces.get(2));
    assertTrue(System.nanoTime() - start < 900_000_000, "only the first one waits a second");
    assertSame(pieces.get(1), memory.take(memory.device, 2), "kept for reuse");
    assertEquals(List.of(), List.copyOf(memory.freed));
    idle.countDown();
    long end = System.nanoTime() + LONG.toNanos();
    while (memory.freed.size() < 2 && System.nanoTime() < end) {
      Thread.sleep(1);
    }
    assertEquals(Set.of(1L, 3L), Set.copyOf(memory.freed));
    MemoryPool.put(pieces.get(1));
    awaitFreed(memory, 3);
  }

  private static void awaitFreed(Numbers memory, int number) throws InterruptedException {
    long end = System.nanoTime() + LONG.toNanos();
    while (memory.freed.size() < number && System.nanoTime() < end) {
      Thread.sleep(1);
    }
    assertEquals(number, memory.freed.size());
  }

  /** The memory that was just closed is what the allocation needs. */
  @Test
  void failedAllocationWaitsForALateFree() throws Exception {
    Numbers memory = numbers(false);
    memory.capacity = 1;
    MemoryPool.Piece closed = memory.take(memory.device, 100);
    CountDownLatch idle = new CountDownLatch(1);
    memory.freeing = idle;
    MemoryPool.put(closed);
    Thread.ofPlatform()
        .start(
            () -> {
              LockSupport.parkNanos(300_000_000);
              idle.countDown();
            });
    assertEquals(2, memory.take(memory.device, 200).memory().address());
    assertEquals(List.of(1L), List.copyOf(memory.freed));
  }

  @Test
  void allocationThatFailsBesideAHangingFreeSaysWhy() {
    Numbers memory = new Numbers(false, new CountDownLatch(0), Duration.ofSeconds(4));
    memory.capacity = 2;
    MemoryPool.Piece kept = memory.take(memory.device, 50);
    memory.freeing = new CountDownLatch(1);
    MemoryPool.put(memory.take(memory.device, 100));
    MemoryPool.put(kept);
    assertThrows(CudaException.class, () -> memory.take(memory.device, 200));
    memory.freeing.countDown();
  }

  /** Of two devices with late frees, one ends: its memory need not wait for the other. */
  @Test
  void memoryOfADeviceIsFreedWithItsOwnLateFree() throws Exception {
    Numbers memory = numbers(false);
    MemoryPool.Piece first = memory.take(memory.device, 1);
    MemoryPool.Piece kept = memory.take(memory.device, 2);
    MemoryPool.Piece second = memory.take(memory.device + 1, 3);
    CountDownLatch firstDevice = new CountDownLatch(1);
    CountDownLatch secondDevice = new CountDownLatch(1);
    memory.freeing = firstDevice;
    MemoryPool.put(first);
    MemoryPool.put(kept);
    memory.freeing = secondDevice;
    MemoryPool.put(second);
    memory.freeing = new CountDownLatch(0);
    firstDevice.countDown();
    awaitFreed(memory, 2);
    assertEquals(Set.of(1L, 2L), Set.copyOf(memory.freed));
    secondDevice.countDown();
    awaitFreed(memory, 3);
  }

  /** A device on which a free waits does not keep the memory of another one. */
  @Test
  void lateFreeKeepsOnlyMemoryOfItsDevice() throws Exception {
    Numbers memory = numbers(false);
    MemoryPool.Piece busy = memory.take(memory.device, 1);
    MemoryPool.Piece other = memory.take(memory.device + 1, 2);
    CountDownLatch idle = new CountDownLatch(1);
    memory.freeing = idle;
    MemoryPool.put(busy);
    memory.freeing = new CountDownLatch(0);
    MemoryPool.put(other);
    awaitFreed(memory, 1);
    assertEquals(List.of(2L), List.copyOf(memory.freed));
    idle.countDown();
    awaitFreed(memory, 2);
  }

  @Test
  void reservedMemoryServesSeveralAllocations() {
    Numbers memory = numbers(true);
    memory.reserve(memory.device, 100, 2);
    assertEquals(2, memory.allocations.get());
    memory.take(memory.device, 100);
    memory.take(memory.device, 100);
    assertEquals(2, memory.allocations.get());
  }

  @Test
  void ranksOfOneCommunicatorCountTogether() {
    Object cohort = new Object();
    Object first = new Object();
    Object second = new Object();
    Object otherCohort = new Object();
    OpenRanks.opened(cohort, first);
    OpenRanks.opened(otherCohort, first);
    AtomicInteger alone = new AtomicInteger();
    OpenRanks.whenAlone(alone::incrementAndGet);
    assertFalse(OpenRanks.several());
    OpenRanks.opened(cohort, second);
    assertTrue(OpenRanks.several());
    OpenRanks.closed(cohort, first);
    OpenRanks.closed(cohort, first);
    assertTrue(OpenRanks.several());
    assertEquals(0, alone.get(), "the second rank may be stuck");
    OpenRanks.closed(cohort, second);
    assertFalse(OpenRanks.several());
    assertEquals(1, alone.get());
    OpenRanks.closed(otherCohort, first);
    assertEquals(2, alone.get());
  }

  private static void awaitAllocations(Numbers memory, int count) throws InterruptedException {
    long end = System.nanoTime() + LONG.toNanos();
    while (memory.allocations.get() < count && System.nanoTime() < end) {
      Thread.sleep(1);
    }
    assertTrue(memory.allocations.get() >= count, memory.allocations::toString);
  }

  /** Repeats an allocation that is late because the machine is slow; each late one is kept. */
  private static MemoryPool.Piece takeUntilInTime(Numbers memory) {
    long end = System.nanoTime() + LONG.toNanos();
    while (true) {
      try {
        return memory.take(memory.device, 50);
      } catch (NcclTimeoutException e) {
        if (System.nanoTime() >= end) {
          throw e;
        }
      }
    }
  }
}
