/**
 * Tensors of libtorch as nccl4j buffers, without a copy, for any Java framework that exposes the
 * address of an {@code at::Tensor}.
 *
 * <p>Calls native code: start Java with {@code --enable-native-access=io.nccl4j.libtorch}.
 */
module io.nccl4j.libtorch {
  requires transitive io.nccl4j;

  exports io.nccl4j.libtorch;
}
