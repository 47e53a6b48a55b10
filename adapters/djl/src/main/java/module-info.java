/**
 * NDArrays of DJL's PyTorch engine as buffers of nccl4j, without a copy.
 *
 * <p>DJL has no module descriptors of its own, is here under automatic names, and is best left on
 * the class path: its native jars have names that no module can have. Start Java with {@code
 * --enable-native-access=ALL-UNNAMED} there.
 */
@SuppressWarnings({"requires-automatic", "requires-transitive-automatic"})
module io.nccl4j.djl {
  requires transitive ai.djl.api;
  requires ai.djl.pytorch_engine;
  requires transitive io.nccl4j;
  requires io.nccl4j.libtorch;

  exports io.nccl4j.djl;
}
