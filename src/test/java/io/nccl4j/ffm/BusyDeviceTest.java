package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.Stream;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.cuda.CudaDevices;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.nccl.NcclBackend;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * Tests that closing memory neither fails nor waits long while a kernel runs whose peer is late, in
 * a process with one rank of each communicator. That kernel is launched without nccl4j, which knows
 * no other rank of this process then.
 */
@OnStandIn
class BusyDeviceTest {
  private static final int DEVICE = 5;
  private static final int COUNT = 1000;
  private static final long SOON_SECONDS = 20;

  private final Backend backend = Backend.nccl();
  private final MemorySegment comms = Arena.ofAuto().allocate(ValueLayout.ADDRESS, 2);
  private MemorySegment kernelStream;
  private MemorySegment value;

  @BeforeEach
  void createRanks() {
    StandIn.reset();
    StandIn.connect(false); // A collective of one rank blocks in its stream, not in its call.
    try (Arena arena = Arena.ofConfined()) {
      CudaDevices.use(DEVICE);
      MemorySegment devices = arena.allocateFrom(ValueLayout.JAVA_INT, DEVICE, DEVICE - 1);
      assertEquals(0, nccl_h.ncclCommInitAll(comms, 2, devices));
      CudaDevices.use(DEVICE);
      MemorySegment cell = arena.allocate(ValueLayout.ADDRESS);
      assertEquals(0, cudart_h.cudaStreamCreateWithFlags(cell, cudart_h.cudaStreamNonBlocking()));
      kernelStream = cell.get(ValueLayout.ADDRESS, 0);
      assertEquals(0, cudart_h.cudaMalloc(cell, COUNT * Integer.BYTES));
      value = cell.get(ValueLayout.ADDRESS, 0);
    }
  }

  @AfterEach
  void close() {
    endKernel();
    CudaDevices.use(DEVICE);
    assertEquals(0, cudart_h.cudaStreamDestroy(kernelStream));
    assertEquals(0, cudart_h.cudaFree(value));
    backend.close();
    StandIn.reset();
  }

  @Test
  void closedMemoryIsFreedWhenTheKernelEnds() {
    long memory = StandIn.live("memory");
    long pinned = StandIn.live("pinned");
    Stream stream = backend.newStream(DEVICE);
    Buffer uploaded = backend.newBuffer(DEVICE, DataType.INT32, COUNT);
    uploaded.copyFromAsync(new int[COUNT], stream);
    stream.synchronize();
    List<Buffer> buffers =
        List.of(
            uploaded,
            backend.newBuffer(DEVICE, DataType.INT32, COUNT),
            NcclBackend.of(backend).newRegistrableBuffer(DEVICE, DataType.INT32, COUNT),
            backend.newPinnedBuffer(DataType.INT32, COUNT));
    startKernel();
    long start = System.nanoTime();
    buffers.forEach(Buffer::close);
    stream.close();
    long nanos = System.nanoTime() - start;
    assertTrue(nanos < TimeUnit.SECONDS.toNanos(SOON_SECONDS), () -> "took " + nanos + " ns");
    assertNotEquals(memory, StandIn.live("memory"));
    assertNotEquals(pinned, StandIn.live("pinned"));
    endKernel();
    await(() -> StandIn.live("memory") == memory && StandIn.live("pinned") == pinned);
  }

  private void startKernel() {
    int type = nccl_h.ncclInt();
    MemorySegment comm = comms.getAtIndex(ValueLayout.ADDRESS, 0);
    assertEquals(
        0, nccl_h.ncclAllReduce(value, value, COUNT, type, nccl_h.ncclSum(), comm, kernelStream));
  }

  /** Aborts the communicators, once; NCCL ignores null. */
  private void endKernel() {
    for (int rank = 0; rank < 2; rank++) {
      assertEquals(0, nccl_h.ncclCommAbort(comms.getAtIndex(ValueLayout.ADDRESS, rank)));
      comms.setAtIndex(ValueLayout.ADDRESS, rank, MemorySegment.NULL);
    }
  }

  private static void await(BooleanSupplier condition) {
    long start = System.nanoTime();
    while (!condition.getAsBoolean()) {
      assertTrue(
          System.nanoTime() - start < TimeUnit.SECONDS.toNanos(SOON_SECONDS),
          "the condition did not become true");
      LockSupport.parkNanos(1_000_000);
    }
  }
}
