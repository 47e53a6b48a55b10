package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.internal.ffm.NativeLibrary;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.VersionReport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Tests the version report, and functions that exist only because nccl.h has them. */
@OnStandIn
class VersionReportTest {
  @BeforeEach
  @AfterEach
  void reset() {
    StandIn.reset();
  }

  @Test
  void backendReportsLoadedVersions() {
    try (Backend backend = NcclBackend.open()) {
      VersionReport report = NcclBackend.of(backend).versionReport();
      assertEquals(VersionReport.load(), report);
      assertEquals(NativeLibrary.NCCL.load().path(), report.ncclLibrary());
      assertEquals(NativeLibrary.CUDART.load().path(), report.cudaRuntimeLibrary());
      assertEquals("2.30.7", report.nccl());
      assertEquals("2.30.7", report.headers());
      assertEquals(Backend.libraryVersion(), report.nccl4j());
      assertTrue(report.driver().isPresent(), "the stand-in has a driver");
    }
  }

  @Test
  @SuppressWarnings("deprecation") // As its C function.
  void resetDebugInitCallsNccl() {
    try (Backend backend = NcclBackend.open()) {
      NcclBackend.of(backend).resetDebugInit();
      assertEquals(1, StandIn.calls("ncclResetDebugInit"));
    }
  }

  @Test
  void dumpCallsNccl() {
    try (Backend backend = NcclBackend.open()) {
      NcclBackend.of(backend).parameters().dump();
      assertEquals(1, StandIn.calls("ncclParamDumpAll"));
    }
  }
}
