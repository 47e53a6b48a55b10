package io.nccl4j.natives;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.Backend;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.VersionReport;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What a backend tells of its versions, and what is there only because nccl.h has it. */
@OnStandIn
class VersionReportTest {
  @BeforeEach
  @AfterEach
  void reset() {
    StandIn.reset();
  }

  @Test
  void theReportSaysWhatTheVersionsSay() {
    try (Backend backend = NcclBackend.open()) {
      VersionReport report = NcclBackend.of(backend).versionReport();
      Map<String, String> versions = backend.versions();
      assertEquals(versions.get("nccl4j"), report.nccl4j());
      assertEquals(versions.get("nccl"), report.nccl());
      assertEquals(versions.get("nccl headers"), report.headers());
      assertEquals(versions.get("nccl library"), report.ncclLibrary().toString());
      assertEquals(versions.get("cuda runtime"), report.cudaRuntime());
      assertEquals(versions.get("cuda runtime library"), report.cudaRuntimeLibrary().toString());
      assertEquals(Optional.of(versions.get("cuda driver")), report.driver());
      assertEquals(Optional.empty(), report.ncclCuda(), "the stand-in is built for no CUDA");
    }
  }

  @Test
  @SuppressWarnings("deprecation") // As its C function.
  void theDebugVariablesAreReadAgainOnDemand() {
    try (Backend backend = NcclBackend.open()) {
      NcclBackend.of(backend).resetDebugInit();
      assertEquals(1, StandIn.calls("ncclResetDebugInit"));
    }
  }

  @Test
  void parametersAreDumpedByNccl() {
    try (Backend backend = NcclBackend.open()) {
      NcclBackend.of(backend).parameters().dump();
      assertEquals(1, StandIn.calls("ncclParamDumpAll"));
    }
  }
}
