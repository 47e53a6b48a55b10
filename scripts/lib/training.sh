# Sourced after java.sh, not run. Starts a program of examples/training.
#
#   nccl4j_train MAIN_CLASS [arguments]
#
# PyTorch's native libraries are unpacked, once, into examples/target/natives.

nccl4j_train() {
  local main=$1
  shift
  nccl4j_alone training "$nccl4j_root/adapters/libtorch" "$nccl4j_root/adapters/pytorch"
  nccl4j_ready
  exec "$nccl4j_home/bin/java" -Xlog:disable -Xlog:all=error:stderr -XX:+UseSerialGC \
    --enable-native-access=io.nccl4j,io.nccl4j.libtorch,org.bytedeco.javacpp,org.bytedeco.openblas,org.bytedeco.pytorch \
    --sun-misc-unsafe-memory-access=allow "-Dorg.bytedeco.javacpp.cachedir=$nccl4j_target/natives/javacpp" \
    --module-path "$nccl4j_folder/training" --add-modules ALL-MODULE-PATH \
    -m "io.nccl4j.examples.training/io.nccl4j.examples.training.$main" "$@"
}
