package io.nccl4j.internal.reference.provider;

import io.nccl4j.Backend;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.reference.bootstrap.ReferenceId;
import io.nccl4j.reference.ReferenceBackend;
import io.nccl4j.spi.BackendProvider;

/** Opens the reference backend for {@link Backend#reference} and {@link Backend#auto}. */
public final class ReferenceProvider implements BackendProvider {
  /** Creates the provider, as {@link java.util.ServiceLoader} requires. */
  public ReferenceProvider() {}

  @Override
  public Backend open(int devices) {
    return ReferenceBackend.open(devices);
  }

  @Override
  public String makerOf(UniqueId id) {
    return ReferenceId.of(id).maker().toString();
  }
}
