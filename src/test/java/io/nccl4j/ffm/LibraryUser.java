package io.nccl4j.ffm;

import io.nccl4j.Backend;
import io.nccl4j.CudaException;
import io.nccl4j.LibraryNotFoundException;
import io.nccl4j.internal.NativeLibrary;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.VersionReport;

/** The program of {@link LibrarySearchTest}: prints which libraries were loaded, or the error. */
public final class LibraryUser {
  private LibraryUser() {}

  /**
   * Opens the NCCL backend; with the argument {@code auto}, {@link Backend#auto()}; with {@code
   * cudart}, only loads the CUDA runtime.
   */
  public static void main(String[] arguments) {
    String mode = arguments.length > 0 ? arguments[0] : "nccl";
    if (mode.equals("cudart")) {
      System.out.println("cudart from " + NativeLibrary.CUDART.load().path());
      return;
    }
    try (Backend backend = mode.equals("auto") ? Backend.auto() : Backend.nccl()) {
      VersionReport report = NcclBackend.of(backend).versionReport();
      System.out.println("nccl from " + report.ncclLibrary());
      System.out.println("cudart from " + report.cudaRuntimeLibrary());
    } catch (LibraryNotFoundException e) {
      System.out.println("no " + e.library() + "\n" + e.getMessage());
    } catch (CudaException e) {
      System.out.println("no device\n" + e.getMessage());
    } catch (IllegalCallerException | IllegalStateException e) {
      System.out.println(e.getMessage());
    }
  }
}
