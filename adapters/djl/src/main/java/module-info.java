/**
 * NDArrays of DJL's PyTorch engine as nccl4j buffers, without a copy.
 *
 * <p>DJL has no module descriptors and is required by its automatic module names. It is best used
 * on the class path, since the names of its native jars are not valid module names; start Java with
 * {@code --enable-native-access=ALL-UNNAMED} there.
 */
@SuppressWarnings({"requires-automatic", "requires-transitive-automatic"})
module io.nccl4j.djl {
  requires transitive ai.djl.api;
  requires ai.djl.pytorch_engine;
  requires transitive io.nccl4j;
  requires io.nccl4j.libtorch;

  exports io.nccl4j.djl;
}
