package io.nccl4j.ffm;

import io.nccl4j.Backend;
import io.nccl4j.CudaException;
import io.nccl4j.LibraryNotFoundException;
import io.nccl4j.internal.ffm.NativeLibrary;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.VersionReport;
import java.io.IOException;

/** The program of {@link LibrarySearchTest}: prints which libraries were loaded, or the error. */
public final class LibraryUser {
  private LibraryUser() {}

  /**
   * Opens the NCCL backend; with the argument {@code auto}, {@link Backend#auto()}; with {@code
   * cudart}, only loads the CUDA runtime; with {@code copies}, lists the files of libnccl.
   */
  public static void main(String[] arguments) throws IOException {
    String mode = arguments.length > 0 ? arguments[0] : "nccl";
    if (mode.equals("cudart")) {
      System.out.println("cudart from " + NativeLibrary.CUDART.load().path());
      return;
    }
    if (mode.equals("copies")) {
      NativeLibrary.NCCL.copies().forEach(System.out::println);
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
