/**
 * NCCL for Java: communicators, streams and buffers, and the backend over NVIDIA's libraries. The
 * module {@code io.nccl4j.reference} brings another backend, in pure Java.
 *
 * <p>The NCCL backend calls native code, so a program that uses it starts Java with {@code
 * --enable-native-access=io.nccl4j} (or {@code ALL-UNNAMED} where nccl4j lies on the class path).
 */
// The modules that internal packages are exported to are built after this one.
@SuppressWarnings("module")
module io.nccl4j {
  requires jdk.jfr;
  requires static java.management; // A run-time image without it has no MBean.
  requires org.apache.logging.log4j;
  requires static transitive org.jspecify;

  uses io.nccl4j.NativeLibraryLookup;
  uses io.nccl4j.spi.BackendProvider;
  uses org.apache.logging.log4j.spi.Provider;

  exports io.nccl4j;
  exports io.nccl4j.cuda;
  exports io.nccl4j.nccl;
  exports io.nccl4j.ras;
  exports io.nccl4j.plugin;
  exports io.nccl4j.rendezvous;
  exports io.nccl4j.spi to
      io.nccl4j.reference;
  exports io.nccl4j.internal.auth to
      io.nccl4j.reference;
  exports io.nccl4j.internal.util to
      io.nccl4j.reference,
      io.nccl4j.training;
}
