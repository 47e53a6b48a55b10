package io.nccl4j.cuda;

import io.nccl4j.Graph;
import io.nccl4j.GroupCall;
import io.nccl4j.Platform;
import io.nccl4j.Stream;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.internal.CudaResults;
import io.nccl4j.internal.PlatformThreads;
import io.nccl4j.internal.cuda.CurrentDevice;
import io.nccl4j.internal.util.Steps;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;

/** An executable CUDA graph. */
public final class CudaGraph extends Graph {
  private final int device;
  private final MemorySegment handle;

  private CudaGraph(int device, MemorySegment handle, List<List<GroupCall>> launches) {
    super(Platform.CUDA, device, launches);
    this.device = device;
    this.handle = handle;
  }

  /** Makes an executable graph of a captured one, which is given back. */
  static CudaGraph instantiate(int device, MemorySegment graph, List<List<GroupCall>> launches) {
    return CurrentDevice.call(
        device,
        () -> {
          CudaGraph made;
          try {
            made = new CudaGraph(device, executable(graph), launches);
          } catch (RuntimeException | Error failure) {
            Steps.after(failure, () -> destroy(graph));
            throw failure;
          }
          try {
            destroy(graph);
          } catch (RuntimeException | Error failure) {
            Steps.after(failure, made::close);
            throw failure;
          }
          return made;
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

  /**
   * {@return the {@code cudaGraphExec_t}: the way out to other native code} It is valid until this
   * graph is closed.
   */
  public long address() {
    return handle.address();
  }

  @Override
  protected void replay(Stream stream) {
    ((CudaStream) stream).launch(handle);
  }

  @Override
  protected void release() {
    String function = "cudaGraphExecDestroy";
    Runnable destroy = () -> CudaResults.check(cudart_h.cudaGraphExecDestroy(handle), function);
    PlatformThreads.run(function, () -> CurrentDevice.run(device, destroy));
  }
}
