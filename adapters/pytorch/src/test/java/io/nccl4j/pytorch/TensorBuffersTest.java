package io.nccl4j.pytorch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.adapters.TwoRanks;
import org.bytedeco.javacpp.PointerScope;
import org.bytedeco.pytorch.Scalar;
import org.bytedeco.pytorch.Tensor;
import org.bytedeco.pytorch.TensorOptions;
import org.bytedeco.pytorch.global.torch;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Tensors of JavaCPP's PyTorch share their memory with buffers. */
class TensorBuffersTest {
  private static Tensor full(double value, torch.ScalarType type, long... sizes) {
    return torch.full(sizes, new Scalar(value), new TensorOptions(type));
  }

  @Test
  void tensorHasTheResultOfAnAllReduce() throws Exception {
    TwoRanks.run(
        (comm, stream) -> {
          Tensor tensor = full(comm.rank() + 0.5, torch.ScalarType.Float, 3, 4);
          tensor.select(0, 1).select(0, 2).fill_(new Scalar(10.0));
          try (Buffer buffer = TensorBuffers.of(tensor, "w", comm)) {
            assertEquals(tensor.data_ptr().address(), buffer.address());
            comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
            stream.synchronize();
          }
          assertEquals(2.0f * 11 + 20, tensor.sum().item_float());
          assertEquals(20, tensor.select(0, 1).select(0, 2).item_float());
        });
  }

  @Test
  void bufferHasTheTensorsValues() throws Exception {
    TwoRanks.one(
        (comm, stream) -> {
          Tensor tensor = full(0, torch.ScalarType.BFloat16, 4);
          try (Buffer buffer = TensorBuffers.of(tensor, "w", comm)) {
            tensor.fill_(new Scalar(-1.5));
            assertEquals(-1.5, DataType.BFLOAT16.get(buffer.segment(), 3));
          }
        });
  }

  @Test
  void scopeMayBeClosedWhileABufferIsInUse() throws Exception {
    TwoRanks.run(
        (comm, stream) -> {
          Buffer buffer;
          try (PointerScope scope = new PointerScope()) {
            assertSame(scope, PointerScope.getInnerScope());
            Tensor tensor = full(comm.rank() + 1, torch.ScalarType.Double, 1 << 16);
            buffer = TensorBuffers.of(tensor, "w", comm);
          }
          // Would reuse the memory if it had been freed.
          Tensor other = full(7, torch.ScalarType.Double, 1 << 16);
          comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
          stream.synchronize();
          assertEquals(3, DataType.FLOAT64.get(buffer.segment(), 65535));
          assertEquals(7 * 65536, other.sum().item_double());
          buffer.close();
        });
  }

  @Test
  void unsupportedTensorIsRejectedByName() throws Exception {
    TwoRanks.one(
        (comm, stream) -> {
          Tensor transposed = full(1, torch.ScalarType.Float, 2, 3).t();
          assertEquals(
              "tensor layer1.weight has sizes [3, 2] and strides [1, 3]; it must be contiguous, as"
                  + " after contiguous()",
              assertThrows(
                      IllegalArgumentException.class,
                      () -> TensorBuffers.of(transposed, "layer1.weight", comm))
                  .getMessage());
          transposed.close();
          assertEquals(
              "tensor layer1.weight has the address 0; it was closed or never created",
              assertThrows(
                      IllegalArgumentException.class,
                      () -> TensorBuffers.of(transposed, "layer1.weight", comm))
                  .getMessage());
        });
  }

  @Test
  void nullArgumentsAreNamed() throws Exception {
    TwoRanks.one(
        (comm, stream) -> {
          Tensor tensor = full(1, torch.ScalarType.Float, 4);
          assertEquals("tensor", nullMessage(() -> TensorBuffers.of(null, "w", comm)));
          assertEquals("name", nullMessage(() -> TensorBuffers.of(tensor, null, comm)));
          assertEquals("comm", nullMessage(() -> TensorBuffers.of(tensor, "w", null)));
        });
  }

  private static String nullMessage(Executable call) {
    return assertThrows(NullPointerException.class, call).getMessage();
  }

  @Test
  void negativeBitIsRejected() throws Exception {
    TwoRanks.one(
        (comm, stream) -> {
          Tensor negative = full(1, torch.ScalarType.Float, 4)._neg_view();
          assertEquals(-4, negative.sum().item_float());
          assertEquals(
              "tensor w has the negative bit; its memory must contain its values, as after"
                  + " resolve_neg()",
              assertThrows(
                      IllegalArgumentException.class, () -> TensorBuffers.of(negative, "w", comm))
                  .getMessage());
          try (Buffer buffer = TensorBuffers.of(negative.resolve_neg(), "w", comm)) {
            assertEquals(-1, DataType.FLOAT32.get(buffer.segment(), 0));
          }
        });
  }

  @Test
  void currentStreamNeedsCuda() throws Exception {
    full(1, torch.ScalarType.Float, 1).close();
    TwoRanks.one(
        (comm, stream) -> {
          String message =
              assertThrows(IllegalStateException.class, () -> TensorBuffers.currentStream(comm))
                  .getMessage();
          assertTrue(message.endsWith("is not loaded; this libtorch supports only CPUs"), message);
        });
  }
}
