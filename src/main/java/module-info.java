/**
 * NCCL for Java: the contract of {@code io.nccl4j}, kept by two backends, one over NVIDIA's
 * libraries and one in pure Java.
 *
 * <p>The NCCL backend calls native code, so a program that uses it starts Java with {@code
 * --enable-native-access=io.nccl4j} (or {@code ALL-UNNAMED} where nccl4j lies on the class path).
 * The reference backend needs no such permission.
 */
module io.nccl4j {
  requires jdk.jfr;
  requires jdk.management;
  requires org.apache.logging.log4j;
  requires static transitive org.jspecify;

  uses org.apache.logging.log4j.spi.Provider;

  exports io.nccl4j;
  exports io.nccl4j.cuda;
  exports io.nccl4j.nccl;
  exports io.nccl4j.reference;
  exports io.nccl4j.rendezvous;
  exports io.nccl4j.schedule;
  exports io.nccl4j.training;
}
