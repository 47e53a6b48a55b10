package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Event;
import io.nccl4j.Graph;
import io.nccl4j.Stream;
import io.nccl4j.cuda.CudaEvent;
import io.nccl4j.cuda.CudaGraph;
import io.nccl4j.cuda.CudaStream;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.NcclCommunicator;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Tests that backend-specific views refuse the objects of another backend. */
class ViewsTest {
  private static final ReferenceOptions RING =
      ReferenceOptions.defaults().withAlgorithm(Algorithm.RING);

  private static void assertRefused(String message, Executable view) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, view).getMessage());
  }

  @Test
  void referenceObjectsHaveNoNcclOrCudaViews() {
    try (Backend backend = ReferenceBackend.open(1, RING);
        Communicator comm =
            backend.newCommunicator(backend.newUniqueId(), 1, 0, CommunicatorConfig.defaults());
        Stream stream = comm.newStream();
        Event event = comm.newEvent();
        Graph graph = Graph.capture(List.of(stream), () -> {}).getFirst()) {
      assertRefused(
          "backend is reference; this needs the backend nccl", () -> NcclBackend.of(backend));
      assertRefused(
          "communicator is "
              + comm
              + " of the backend reference; this needs one of the backend nccl",
          () -> NcclCommunicator.of(comm));
      assertRefused(
          "stream is " + stream + "; it must be one of CUDA", () -> CudaStream.of(stream));
      assertRefused("event is " + event + "; it must be one of CUDA", () -> CudaEvent.of(event));
      assertRefused("graph is " + graph + "; it must be one of CUDA", () -> CudaGraph.of(graph));
    }
  }

  @Test
  void referenceViewHasItsOptions() {
    try (Backend backend = ReferenceBackend.open(1, RING)) {
      assertEquals(RING, ReferenceBackend.of(backend).options());
    }
  }
}
