package io.nccl4j.adapters;

import ai.djl.ndarray.NDArray;
import ai.djl.ndarray.NDManager;
import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.djl.NDArrayBuffers;
import java.util.Arrays;

/** Sums an array over two ranks on the CPU. */
final class AllReduceArray {
  public static void main(String[] args) {
    try (Backend backend = Backend.reference(2)) {
      backend.runRanks(
          2,
          comm -> { // a thread per rank
            try (NDManager manager = NDManager.newBaseManager();
                NDArray grads = manager.create(new float[] {comm.rank(), 5, 1});
                Stream stream = comm.newStream();
                Buffer buffer = NDArrayBuffers.of(grads, "grads", comm)) {
              comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
              stream.synchronize();
              IO.println("rank " + comm.rank() + ": " + Arrays.toString(grads.toFloatArray()));
            }
          });
    }
  }

  private AllReduceArray() {}
}
