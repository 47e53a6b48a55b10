package io.nccl4j.djl;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ai.djl.ndarray.NDArray;
import ai.djl.ndarray.NDManager;
import ai.djl.ndarray.types.DataType;
import ai.djl.ndarray.types.Shape;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.ReduceOp;
import io.nccl4j.adapters.TwoRanks;
import java.nio.FloatBuffer;
import org.junit.jupiter.api.Test;

/**
 * NDArrays of DJL's PyTorch engine share their memory with buffers. DJL's libtorch is older than
 * that of the other tests and has fewer functions.
 */
class NDArrayBuffersTest {
  private static String messageFor(NDArray array, Communicator comm) {
    return assertThrows(IllegalArgumentException.class, () -> NDArrayBuffers.of(array, "w", comm))
        .getMessage();
  }

  @Test
  void arrayHasTheResultOfAnAllReduce() throws Exception {
    TwoRanks.run(
        (comm, stream) -> {
          try (NDManager manager = NDManager.newBaseManager()) {
            NDArray array = manager.create(new float[] {comm.rank(), 5, 1}, new Shape(3));
            try (Buffer buffer = NDArrayBuffers.of(array, "w", comm)) {
              comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
              stream.synchronize();
            }
            assertArrayEquals(new float[] {1, 10, 2}, array.toFloatArray());
          }
        });
  }

  @Test
  void bufferHasTheArraysValues() throws Exception {
    TwoRanks.one(
        (comm, stream) -> {
          try (NDManager manager = NDManager.newBaseManager()) {
            NDArray array = manager.zeros(new Shape(2, 2), DataType.FLOAT64);
            try (Buffer buffer = NDArrayBuffers.of(array, "w", comm)) {
              array.addi(2.5);
              assertEquals(4, buffer.count());
              assertEquals(2.5, buffer.type().get(buffer.segment(), 3));
            }
          }
        });
  }

  @Test
  void managerMayBeClosedWhileABufferIsInUse() throws Exception {
    TwoRanks.run(
        (comm, stream) -> {
          Buffer buffer;
          try (NDManager manager = NDManager.newBaseManager()) {
            buffer =
                NDArrayBuffers.of(
                    manager.full(new Shape(1 << 16), comm.rank() + 1, DataType.FLOAT32), "w", comm);
          }
          try (NDManager manager = NDManager.newBaseManager()) {
            // Would reuse the memory if it had been freed.
            NDArray other = manager.full(new Shape(1 << 16), 7, DataType.FLOAT32);
            comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
            stream.synchronize();
            assertEquals(3, buffer.type().get(buffer.segment(), 65535));
            assertEquals(7, other.getFloat(65535));
          }
          buffer.close();
        });
  }

  @Test
  void unsupportedArrayIsRejectedByName() throws Exception {
    TwoRanks.one(
        (comm, stream) -> {
          try (NDManager manager = NDManager.newBaseManager()) {
            NDArray matrix = manager.ones(new Shape(2, 3));
            assertEquals(
                "tensor w has sizes [3, 2] and strides [1, 3]; it must be contiguous, as after"
                    + " contiguous()",
                messageFor(matrix.transpose(), comm));
            assertEquals(
                "tensor w has the element type bool, which NCCL does not have; convert it first",
                messageFor(manager.ones(new Shape(2), DataType.BOOLEAN), comm));
            matrix.close();
            assertEquals("array w was closed", messageFor(matrix, comm));
          }
        });
  }

  @Test
  void sparseArrayIsRejected() throws Exception {
    TwoRanks.one(
        (comm, stream) -> {
          try (NDManager manager = NDManager.newBaseManager()) {
            NDArray sparse =
                manager.createCoo(
                    FloatBuffer.wrap(new float[] {1, 2}),
                    new long[][] {{0, 1}, {1, 0}},
                    new Shape(2, 2));
            String message = messageFor(sparse, comm);
            assertTrue(message.contains("strides [0, 0]"), message);
          }
        });
  }
}
