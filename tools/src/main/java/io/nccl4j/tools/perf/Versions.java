package io.nccl4j.tools.perf;

import io.nccl4j.Backend;
import io.nccl4j.DeviceType;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.VersionReport;
import java.util.LinkedHashMap;
import java.util.Map;

/** The versions of nccl4j, Java and the native libraries, by their names in a JSON report. */
final class Versions {
  private Versions() {}

  static Map<String, String> of(Backend backend) {
    Map<String, String> versions = new LinkedHashMap<>();
    versions.put("nccl4j", Backend.libraryVersion());
    versions.put("java", Runtime.version().toString());
    if (backend.deviceType() == DeviceType.CUDA) {
      VersionReport report = NcclBackend.of(backend).versionReport();
      versions.put("nccl", report.nccl());
      versions.put("nccl library", report.ncclLibrary().toString());
      versions.put("nccl headers", report.headers());
      versions.put("cuda runtime", report.cudaRuntime());
      versions.put("cuda runtime library", report.cudaRuntimeLibrary().toString());
      report.driver().ifPresent(driver -> versions.put("cuda driver", driver));
    }
    return versions;
  }
}
