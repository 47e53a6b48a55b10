package io.nccl4j.cuda;

import io.nccl4j.Graph;
import io.nccl4j.internal.cuda.CudaGraphDriver;
import io.nccl4j.spi.Contract;
import java.util.Objects;
import org.jspecify.annotations.NullMarked;

/** The CUDA-specific operations of a {@link Graph}. An instance is a view and owns nothing. */
@NullMarked
public final class CudaGraph {
  private final CudaGraphDriver driver;

  private CudaGraph(CudaGraphDriver driver) {
    this.driver = driver;
  }

  /**
   * {@return a view of a graph}
   *
   * @param graph a graph of the NCCL backend
   * @throws IllegalArgumentException if it belongs to another backend
   */
  public static CudaGraph of(Graph graph) {
    Objects.requireNonNull(graph, "graph");
    if (Contract.get().driver(graph) instanceof CudaGraphDriver driver) {
      return new CudaGraph(driver);
    }
    throw new IllegalArgumentException("graph is " + graph + "; it must be one of CUDA");
  }

  /**
   * {@return the {@code cudaGraphExec_t}, for use in other native code} It is valid until the graph
   * is closed.
   */
  public long address() {
    return driver.address();
  }
}
