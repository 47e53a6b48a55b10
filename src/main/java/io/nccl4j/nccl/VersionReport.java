package io.nccl4j.nccl;

import io.nccl4j.Backend;
import io.nccl4j.CudaException;
import io.nccl4j.LibraryNotFoundException;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.cuda.CudaDevices;
import io.nccl4j.internal.NativeLibrary;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
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

  private static final String MARK = "NCCL version ";
  private static final String CUDA_MARK = "+cuda";
  private static final int LONGEST_VERSION = 64;

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

  /**
   * {@return the CUDA release that the NCCL library was built for, such as {@code 13.3}; empty if
   * its file does not contain it} Reads the file, which has several hundred megabytes.
   *
   * @throws UncheckedIOException if the file cannot be read
   */
  public Optional<String> ncclCuda() {
    return cudaOf(ncclLibrary);
  }

  static String cudaVersion(int code) {
    return code / 1000 + "." + code % 1000 / 10;
  }

  static Optional<String> driverVersion() {
    int driver = CudaDevices.driverVersion();
    return driver == 0 ? Optional.empty() : Optional.of(cudaVersion(driver));
  }

  /** Searches the file for the version string, such as {@code NCCL version 2.30.7+cuda13.3}. */
  static Optional<String> cudaOf(Path library) {
    try (FileChannel file = FileChannel.open(library);
        Arena arena = Arena.ofConfined()) {
      MemorySegment bytes = file.map(FileChannel.MapMode.READ_ONLY, 0, file.size(), arena);
      byte[] mark = MARK.getBytes(StandardCharsets.US_ASCII);
      for (long at = 0; at <= bytes.byteSize() - mark.length; at++) {
        if (bytes.get(ValueLayout.JAVA_BYTE, at) == mark[0] && startsWith(bytes, at, mark)) {
          Optional<String> cuda = cudaAfter(bytes, at + mark.length);
          if (cuda.isPresent()) {
            return cuda;
          }
        }
      }
      return Optional.empty();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static boolean startsWith(MemorySegment bytes, long at, byte[] mark) {
    return bytes.asSlice(at, mark.length).mismatch(MemorySegment.ofArray(mark)) == -1;
  }

  private static Optional<String> cudaAfter(MemorySegment bytes, long at) {
    long length = Math.min(LONGEST_VERSION, bytes.byteSize() - at);
    byte[] version = bytes.asSlice(at, length).toArray(ValueLayout.JAVA_BYTE);
    String text = new String(version, StandardCharsets.ISO_8859_1);
    int cuda = text.indexOf(CUDA_MARK);
    int end = text.indexOf('\0');
    return cuda >= 0 && cuda < end
        ? Optional.of(text.substring(cuda + CUDA_MARK.length(), end))
        : Optional.empty();
  }
}
