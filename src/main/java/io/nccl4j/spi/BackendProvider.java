package io.nccl4j.spi;

import io.nccl4j.Backend;
import io.nccl4j.UniqueId;

/**
 * The reference backend, found by {@link java.util.ServiceLoader} through the class loader of
 * nccl4j.
 */
public interface BackendProvider {
  /**
   * The first bytes, in ASCII, of every id that the reference backend creates. NCCL's backend
   * rejects such an id also where no provider is present.
   */
  String ID_PREFIX = "nccl4j-reference";

  /**
   * Opens a backend.
   *
   * @param devices the number of devices
   * @throws IllegalArgumentException if {@code devices} is out of range
   */
  Backend open(int devices);

  /**
   * Returns the process that created an id, such as {@code process 4711 on host a}.
   *
   * @param id an id that starts with {@link #ID_PREFIX}
   * @throws IllegalArgumentException if it is damaged
   */
  String makerOf(UniqueId id);
}
