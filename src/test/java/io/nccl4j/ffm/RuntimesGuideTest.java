package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.Graph;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.cuda.CudaStream;
import io.nccl4j.fixtures.libraries.OnStandIn;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import org.junit.jupiter.api.Test;

/**
 * Runs the code of the guide on runtimes, {@code docs/guides/runtimes.md}, for a runtime with a
 * stream and memory of its own, whose kernel sets every byte of the memory.
 */
@OnStandIn
class RuntimesGuideTest {
  private static final int COUNT = 1000;

  /** A runtime, which owns memory and a stream on the device of a rank. */
  private static final class Owner implements AutoCloseable {
    private final int rank;
    private final MemorySegment stream;
    private final MemorySegment memory;

    Owner(Communicator comm) {
      rank = comm.rank();
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment cell = arena.allocate(ValueLayout.ADDRESS);
        check(cudart_h.cudaSetDevice(comm.device()));
        check(cudart_h.cudaStreamCreateWithFlags(cell, cudart_h.cudaStreamNonBlocking()));
        stream = cell.get(ValueLayout.ADDRESS, 0);
        check(cudart_h.cudaMalloc(cell, COUNT * Integer.BYTES));
        memory = cell.get(ValueLayout.ADDRESS, 0);
      }
    }

    void launchKernel() {
      check(cudart_h.cudaMemsetAsync(memory, rank + 1, COUNT * Integer.BYTES, stream));
    }

    @Override
    public void close() {
      check(cudart_h.cudaFree(memory));
      check(cudart_h.cudaStreamDestroy(stream));
    }

    static void check(int result) {
      assertEquals(0, result);
    }
  }

  private static void assertSums(Buffer sums, Stream stream) {
    int[] expected = new int[COUNT];
    Arrays.fill(expected, 0x03030303);
    int[] values = new int[COUNT];
    sums.copyTo(values, stream);
    assertArrayEquals(expected, values);
  }

  @Test
  void codeOfTheGuideSumsWhatTheKernelsWrote() {
    try (Backend backend = Backend.nccl()) {
      backend.runRanks(
          2,
          comm -> {
            try (Owner owner = new Owner(comm);
                Stream stream = comm.newStream()) {
              long streamAddress = owner.stream.address();
              long memoryAddress = owner.memory.address();
              int count = COUNT;
              int device = comm.device();

              owner.launchKernel();
              Stream runtime = CudaStream.ofAddress(streamAddress, device);
              Buffer sums = Buffer.ofDeviceAddress(memoryAddress, DataType.INT32, count, device);
              comm.allReduce(sums, sums, ReduceOp.SUM, runtime);
              assertSums(sums, runtime);

              owner.launchKernel();
              try (Event computed = comm.newEvent();
                  Event reduced = comm.newEvent()) {
                runtime.record(computed); // what the runtime has enqueued so far
                stream.waitFor(computed);
                comm.allReduce(sums, sums, ReduceOp.SUM, stream);
                stream.record(reduced);
                runtime.waitFor(reduced); // before what it enqueues from now on
              }
              assertSums(sums, runtime);

              try (Graph step =
                  Graph.capture(
                      runtime,
                      () -> {
                        owner.launchKernel();
                        comm.allReduce(sums, sums, ReduceOp.SUM, runtime);
                      })) {
                step.launch(runtime);
                step.launch(runtime);
                assertSums(sums, runtime);
              }

              launchCaptured(owner, () -> comm.allReduce(sums, sums, ReduceOp.SUM, runtime));
              assertSums(sums, runtime);

              sums.close();
              runtime.close();
            }
          });
    }
  }

  /** Captures and launches a graph with the runtime's own calls. */
  private static void launchCaptured(Owner owner, Runnable collective) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment cell = arena.allocate(ValueLayout.ADDRESS);
      Owner.check(
          cudart_h.cudaStreamBeginCapture(
              owner.stream, cudart_h.cudaStreamCaptureModeThreadLocal()));
      owner.launchKernel();
      collective.run();
      Owner.check(cudart_h.cudaStreamEndCapture(owner.stream, cell));
      MemorySegment graph = cell.get(ValueLayout.ADDRESS, 0);
      Owner.check(cudart_h.cudaGraphInstantiate(cell, graph, 0));
      MemorySegment executable = cell.get(ValueLayout.ADDRESS, 0);
      Owner.check(cudart_h.cudaGraphLaunch(executable, owner.stream));
      Owner.check(cudart_h.cudaStreamSynchronize(owner.stream));
      Owner.check(cudart_h.cudaGraphExecDestroy(executable));
      Owner.check(cudart_h.cudaGraphDestroy(graph));
    }
  }
}
