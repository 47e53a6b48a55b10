package io.nccl4j.nccl;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.libraries.OnStandIn;
import java.util.List;
import org.junit.jupiter.api.Test;

/**
 * Runs code that the Javadoc of this package shows, as {@code SnippetsTest} does for the others.
 */
@OnStandIn
class NcclSnippetsTest {
  private final int worldSize = 1;
  private final int rank = 0;

  @Test
  void ncclBackend() {
    try (Backend backend = Backend.nccl()) {
      UniqueId id = backend.newUniqueId();
      NcclBackend nccl = NcclBackend.of(backend);
      NcclConfig config = NcclConfig.defaults().withMaxCtas(8);
      try (Communicator comm = nccl.newCommunicator(id, worldSize, rank, config);
          Stream stream = comm.newStream();
          Buffer buffer = nccl.newRegistrableBuffer(comm.device(), DataType.FLOAT32, 1024)) {
        comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
        stream.synchronize();
      }
    }
  }

  @Test
  void ncclCommunicator() {
    try (Backend backend = Backend.nccl()) {
      backend.runRanks(
          2,
          comm -> {
            int next = 1 - comm.rank();
            int previous = next;
            float[] values = {comm.rank(), 7};
            try (Stream stream = comm.newStream();
                Buffer buffer =
                    NcclBackend.of(backend)
                        .newRegistrableBuffer(comm.rank(), DataType.FLOAT32, 2)) {
              buffer.copyFromAsync(values, stream);
              // The peer writes once the window is registered, whatever this stream still does.
              stream.synchronize();
              NcclCommunicator nccl = NcclCommunicator.of(comm);
              try (Window window = nccl.registerWindow(buffer, WindowOption.SYMMETRIC)) {
                nccl.putSignal(buffer.slice(0, 1), next, window, 1, stream); // to element 1 of next
                nccl.waitSignal(List.of(new WaitSignal(previous, 1)), stream);
                stream.synchronize();
              }
              buffer.copyTo(values, stream);
            }
            assertArrayEquals(new float[] {comm.rank(), previous}, values);
          });
    }
  }
}
