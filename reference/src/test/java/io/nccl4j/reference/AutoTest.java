package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import io.nccl4j.Backend;
import io.nccl4j.CudaException;
import io.nccl4j.fixtures.libraries.Driver;
import io.nccl4j.fixtures.libraries.OnRealLibraries;
import java.util.Optional;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;

/** Tests {@link Backend#auto()} with the reference backend at hand. */
class AutoTest {
  @Test
  void withoutDriverReferenceIsOpenedWithReason() {
    assumeFalse(Driver.present(), "there is a driver");
    try (Backend backend = Backend.auto()) {
      assertEquals("reference", backend.name());
      assertEquals(
          Math.max(2, Runtime.getRuntime().availableProcessors()), backend.devices().size());
      assertTrue(
          backend.fallbackReason().orElseThrow().startsWith("no NVIDIA driver is installed"));
    }
  }

  @Nested
  @OnRealLibraries
  class OfRealLibraries {
    @Test
    void reasonIsWhatNcclThrows() {
      assumeFalse(Driver.present(), "there is a driver");
      CudaException thrown = assertThrows(CudaException.class, Backend::nccl);
      assertEquals("cudaErrorInsufficientDriver", thrown.errorName());
      try (Backend backend = Backend.auto()) {
        assertEquals("reference", backend.name());
        assertEquals(thrown.getMessage(), backend.fallbackReason().orElseThrow());
      }
    }
  }

  @Test
  void supplierOpensTheFallback() {
    assumeFalse(Driver.present(), "there is a driver");
    try (Backend backend = Backend.auto(() -> ReferenceBackend.open(3))) {
      assertEquals(3, backend.devices().size());
      assertFalse(backend.fallbackReason().isEmpty());
    }
  }

  @Test
  void referenceOpenedByNameHasNoReason() {
    try (Backend backend = Backend.reference(1)) {
      assertEquals(Optional.empty(), backend.fallbackReason());
    }
  }
}
