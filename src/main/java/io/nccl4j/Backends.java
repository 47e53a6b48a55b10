package io.nccl4j;

import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.reference.ReferenceBackend;
import java.util.Optional;
import java.util.function.Function;

/** Opens the backends; the only class of this package that depends on them. */
final class Backends {
  private Backends() {}

  static Backend nccl() {
    return NcclBackend.open();
  }

  static Backend ncclOr(Function<String, Backend> fallback) {
    return NcclBackend.openOr(fallback);
  }

  static Backend reference(int devices) {
    return ReferenceBackend.open(devices);
  }

  /** Returns the process whose reference backend created an id, or empty if NCCL created it. */
  static Optional<String> referenceMakerOf(UniqueId id) {
    return ReferenceBackend.makerOf(id);
  }
}
