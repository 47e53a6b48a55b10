package io.nccl4j.nccl;

import io.nccl4j.Backend;
import io.nccl4j.CudaException;
import io.nccl4j.LibraryNotFoundException;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.cuda.CudaDevices;
import io.nccl4j.internal.ffm.NativeLibrary;
import java.nio.file.Path;
import java.util.Optional;
import org.jspecify.annotations.NullMarked;

/**
 * The versions of nccl4j and of the libraries that this process has loaded.
 *
 * @param nccl4j the version of nccl4j
 * @param headers the NCCL release whose headers nccl4j's bindings were generated from, such as
 *     {@code 2.30.7}
 * @param nccl the release of the loaded NCCL library. C: {@code ncclGetVersion}
 * @param ncclLibrary the file that it was loaded from
 * @param cudaRuntime the release of the loaded CUDA runtime. C: {@code cudaRuntimeGetVersion}
 * @param cudaRuntimeLibrary the file that it was loaded from. NCCL itself contains another CUDA
 *     runtime
 * @param driver the newest CUDA release that the driver supports; empty if there is no driver. C:
 *     {@code cudaDriverGetVersion}
 */
@NullMarked
public record VersionReport(
    String nccl4j,
    String headers,
    String nccl,
    Path ncclLibrary,
    String cudaRuntime,
    Path cudaRuntimeLibrary,
    Optional<String> driver) {

  /**
   * {@return the versions in this process} Loads the libraries if they are not loaded yet. Needs
   * neither a GPU nor a driver.
   *
   * @throws LibraryNotFoundException if no usable {@code libnccl} or {@code libcudart} is found
   * @throws CudaException if the runtime cannot determine the driver's version
   * @throws IllegalCallerException if nccl4j has no native access
   */
  public static VersionReport load() {
    NativeLibrary.Loaded cudart = NativeLibrary.CUDART.load();
    NativeLibrary.Loaded nccl = NativeLibrary.NCCL.load();
    return new VersionReport(
        Backend.libraryVersion(),
        new NcclVersion(nccl_h.NCCL_VERSION_CODE()).toString(),
        new NcclVersion(nccl.version()).toString(),
        nccl.path(),
        cudaVersion(cudart.version()),
        cudart.path(),
        driverVersion());
  }

  static String cudaVersion(int code) {
    return code / 1000 + "." + code % 1000 / 10;
  }

  static Optional<String> driverVersion() {
    int driver = CudaDevices.driverVersion();
    return driver == 0 ? Optional.empty() : Optional.of(cudaVersion(driver));
  }
}
