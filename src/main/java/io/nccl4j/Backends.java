package io.nccl4j;

import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.reference.ReferenceBackend;
import java.util.Optional;
import java.util.function.Function;

/** The one class of this package that knows which backends there are. */
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

  /** Returns the process whose reference backend made an id, or nothing if NCCL made it. */
  static Optional<String> referenceMakerOf(UniqueId id) {
    return ReferenceBackend.makerOf(id);
  }
}
