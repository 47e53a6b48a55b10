/**
 * The backend of {@code io.nccl4j} in pure Java, which runs the schedules of NCCL's algorithms.
 *
 * <p>A program needs this module at run time only: {@link io.nccl4j.Backend#reference} and {@link
 * io.nccl4j.Backend#auto} find it by {@link java.util.ServiceLoader}. It calls no native code.
 */
module io.nccl4j.reference {
  requires jdk.management;
  requires org.apache.logging.log4j;
  requires transitive io.nccl4j;
  requires static transitive org.jspecify;

  exports io.nccl4j.reference;
  exports io.nccl4j.schedule;
  exports io.nccl4j.verification;

  provides io.nccl4j.spi.BackendProvider with
      io.nccl4j.internal.reference.provider.ReferenceProvider;
}
