package io.nccl4j.tools.evidence;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.cuda.CudaDevices;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.VersionReport;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Reports devices, driver, libraries and versions of the machine. */
final class DeviceReport {
  static final String DEVICE = "device";
  static final String DEVICES = "devices";
  static final String NCCL = "NCCL";
  static final String NCCL_LIBRARY = "NCCL library";
  static final String CUDART_LIBRARY = "CUDA runtime library";
  static final String LIBRARIES = "libraries are";

  /** A function that only the emulated CUDA of the tests has. */
  private static final String EMULATED_CUDA_FUNCTION = "nccl4j_standin_name";

  /** A function that only the stand-in's NCCL has. */
  private static final String STAND_IN_FUNCTION = "nccl4j_standin_comm_name_intact";

  private static final String UNKNOWN = "unknown";

  private DeviceReport() {}

  static void run(Child child) {
    try (Backend backend = Backend.nccl()) {
      List<Device> devices = backend.devices();
      VersionReport versions = NcclBackend.of(backend).versionReport();
      child.fact(DEVICE, devices.getFirst().name());
      child.fact(DEVICES, "" + devices.size());
      int capability = CudaDevices.computeCapability(0);
      child.fact("compute capability", capability / 10 + "." + capability % 10);
      child.fact("device memory", (devices.getFirst().memoryBytes() >> 20) + " MiB");
      child.fact(NCCL, versions.nccl());
      child.fact(NCCL_LIBRARY, versions.ncclLibrary().toString());
      child.fact("CUDA runtime", versions.cudaRuntime());
      child.fact(CUDART_LIBRARY, versions.cudaRuntimeLibrary().toString());
      child.fact("CUDA of the driver", versions.driver().orElse("none"));
      Libraries libraries = libraries(versions);
      if (libraries != Libraries.NVIDIA) {
        child.fact(LIBRARIES, libraries.description());
      }
      child.fact("nccl4j", versions.nccl4j());
      child.fact("Java", Runtime.version().toString());
      kernelDriver().ifPresent(driver -> child.fact("kernel's driver", driver));
      host(child);
      child.end(
          devices.size(),
          true,
          "%s, NCCL %s, CUDA runtime %s"
              .formatted(devices.getFirst().name(), versions.nccl(), versions.cudaRuntime()));
    }
  }

  private static Libraries libraries(VersionReport versions) {
    if (has(versions.ncclLibrary(), STAND_IN_FUNCTION)) {
      return Libraries.STAND_IN;
    }
    return has(versions.cudaRuntimeLibrary(), EMULATED_CUDA_FUNCTION)
        ? Libraries.EMULATED_CUDA
        : Libraries.NVIDIA;
  }

  @SuppressWarnings("restricted") // The bindings lack these functions, which are not NVIDIA's.
  private static boolean has(Path library, String function) {
    return SymbolLookup.libraryLookup(library, Arena.global()).find(function).isPresent();
  }

  @SuppressWarnings("restricted")
  private static String text(MemorySegment function) {
    try {
      MemorySegment name =
          (MemorySegment)
              Linker.nativeLinker()
                  .downcallHandle(function, FunctionDescriptor.of(ValueLayout.ADDRESS))
                  .invokeExact();
      return name.reinterpret(Long.MAX_VALUE).getString(0);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }

  /** Returns the version of the kernel module, which is known even without nvidia-smi. */
  private static Optional<String> kernelDriver() {
    String version = matched("/proc/driver/nvidia/version", "(?m)^NVRM version: *(.*)$");
    return version.equals(UNKNOWN)
        ? Optional.empty()
        : Optional.of(version.replaceAll("\\s+", " "));
  }

  private static void host(Child child) {
    child.fact("processor", matched("/proc/cpuinfo", "(?m)^model name\\s*: (.*)$"));
    child.fact("processors", "" + Runtime.getRuntime().availableProcessors());
    child.fact("memory", matched("/proc/meminfo", "(?m)^MemTotal: *(.*)$"));
    // Only the numbers: the suffix may name the provider.
    Matcher kernel = Pattern.compile("[0-9.]+").matcher(System.getProperty("os.version"));
    child.fact(
        "system", System.getProperty("os.name") + (kernel.find() ? " " + kernel.group() : ""));
    child.fact("C library", cLibrary());
  }

  private static String matched(String file, String pattern) {
    try {
      Matcher matcher = Pattern.compile(pattern).matcher(Files.readString(Path.of(file)));
      return matcher.find() ? matcher.group(1).strip() : UNKNOWN;
    } catch (IOException e) {
      // Not needed by any other step.
      return UNKNOWN;
    }
  }

  @SuppressWarnings("restricted")
  private static String cLibrary() {
    return Linker.nativeLinker()
        .defaultLookup()
        .find("gnu_get_libc_version")
        .map(function -> "glibc " + text(function))
        .orElse("not glibc");
  }
}
