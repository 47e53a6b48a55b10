# Sourced after java.sh, not run. Starts a program of examples/training.
#
#   nccl4j_train MAIN_CLASS [arguments]
#
# Unpacks PyTorch's native libraries once into target/natives.

nccl4j_train() {
  local main=$1
  shift
  nccl4j_ready examples/training tools training adapters/libtorch adapters/pytorch
  exec "$nccl4j_home/bin/java" -Xlog:disable -Xlog:all=error:stderr -XX:+UseSerialGC \
    --enable-native-access=ALL-UNNAMED --sun-misc-unsafe-memory-access=allow "-Dorg.bytedeco.javacpp.cachedir=$nccl4j_target/natives/javacpp" \
    -cp "$nccl4j_folder/*" "io.nccl4j.examples.training.$main" "$@"
}
