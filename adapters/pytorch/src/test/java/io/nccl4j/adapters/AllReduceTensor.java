package io.nccl4j.adapters;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.pytorch.TensorBuffers;
import org.bytedeco.pytorch.Scalar;
import org.bytedeco.pytorch.Tensor;
import org.bytedeco.pytorch.TensorOptions;
import org.bytedeco.pytorch.global.torch;

/** Sums a tensor over two ranks on the CPU. */
final class AllReduceTensor {
  public static void main(String[] args) {
    TensorOptions float32 = new TensorOptions(torch.ScalarType.Float);
    try (Backend backend = Backend.reference(2)) {
      backend.runRanks(
          2,
          comm -> { // a thread per rank
            Tensor grads = torch.full(new long[] {3}, new Scalar(comm.rank() + 1.0), float32);
            try (Stream stream = comm.newStream();
                Buffer buffer = TensorBuffers.of(grads, "grads", comm)) {
              comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
              stream.synchronize();
            }
            IO.println("rank " + comm.rank() + ": " + grads.sum().item_float());
          });
    }
  }

  private AllReduceTensor() {}
}
