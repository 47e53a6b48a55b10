/**
 * Tensors of the JavaCPP presets for PyTorch as nccl4j buffers, without a copy.
 *
 * <p>Start Java with {@code
 * --enable-native-access=io.nccl4j.libtorch,org.bytedeco.javacpp,org.bytedeco.openblas,org.bytedeco.pytorch},
 * and {@code --add-modules ALL-MODULE-PATH}, or with the native jars on the class path.
 */
module io.nccl4j.pytorch {
  requires transitive io.nccl4j;
  requires io.nccl4j.libtorch;
  requires transitive org.bytedeco.pytorch;

  exports io.nccl4j.pytorch;
}
