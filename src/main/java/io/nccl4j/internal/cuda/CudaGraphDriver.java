package io.nccl4j.internal.cuda;

import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.internal.ffm.PlatformThreads;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.spi.GraphDriver;
import io.nccl4j.spi.StreamDriver;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** An executable CUDA graph. */
public final class CudaGraphDriver implements GraphDriver {
  private final int device;
  private final MemorySegment handle;

  private CudaGraphDriver(int device, MemorySegment handle) {
    this.device = device;
    this.handle = handle;
  }

  /** Instantiates a captured graph and destroys it. */
  static CudaGraphDriver instantiate(int device, MemorySegment graph) {
    return CaptureMode.relaxed(
        device,
        () -> {
          CudaGraphDriver driver;
          try {
            driver = new CudaGraphDriver(device, executable(graph));
          } catch (RuntimeException | Error failure) {
            CloseAll.after(failure, () -> destroy(graph));
            throw failure;
          }
          try {
            destroy(graph);
          } catch (RuntimeException | Error failure) {
            CloseAll.after(failure, driver::release);
            throw failure;
          }
          return driver;
        });
  }

  private static MemorySegment executable(MemorySegment graph) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment executable = arena.allocate(ValueLayout.ADDRESS);
      CudaResults.check(
          cudart_h.cudaGraphInstantiate(executable, graph, 0), "cudaGraphInstantiate");
      return executable.get(ValueLayout.ADDRESS, 0);
    }
  }

  static void destroy(MemorySegment graph) {
    if (graph.address() != 0) {
      CudaResults.check(cudart_h.cudaGraphDestroy(graph), "cudaGraphDestroy");
    }
  }

  /** Returns the {@code cudaGraphExec_t}. */
  public long address() {
    return handle.address();
  }

  @Override
  public void launch(StreamDriver stream) {
    ((CudaStreamDriver) stream).launch(handle);
  }

  @Override
  public void release() {
    String function = "cudaGraphExecDestroy";
    Runnable destroy = () -> CudaResults.check(cudart_h.cudaGraphExecDestroy(handle), function);
    PlatformThreads.run(function, () -> CaptureMode.runRelaxed(device, destroy));
  }
}
