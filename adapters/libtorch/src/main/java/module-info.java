/**
 * Tensors of libtorch as buffers of nccl4j, without a copy, for every Java framework that can tell
 * the address of an {@code at::Tensor}.
 *
 * <p>It calls native code: start Java with {@code --enable-native-access=io.nccl4j.libtorch}.
 */
module io.nccl4j.libtorch {
  requires transitive io.nccl4j;

  exports io.nccl4j.libtorch;
}
