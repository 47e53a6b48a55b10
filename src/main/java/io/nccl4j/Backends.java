package io.nccl4j;

import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.reference.ReferenceBackend;
import java.util.Optional;

/** The one class of this package that knows which backends there are. */
final class Backends {
  private Backends() {}

  static Backend nccl() {
    return NcclBackend.open();
  }

  /** Returns why this process cannot use NCCL, or nothing if it can. */
  static Optional<String> ncclUnusableReason() {
    return NcclBackend.unusableReason();
  }

  static Backend reference(int devices) {
    return ReferenceBackend.open(devices);
  }

  /** Returns the process whose reference backend made an id, or nothing if NCCL made it. */
  static Optional<String> referenceMakerOf(UniqueId id) {
    return ReferenceBackend.makerOf(id);
  }
}
