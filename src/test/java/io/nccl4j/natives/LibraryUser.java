package io.nccl4j.natives;

import io.nccl4j.Backend;
import io.nccl4j.CudaException;
import io.nccl4j.LibraryNotFoundException;
import io.nccl4j.internal.NativeLibrary;

/** A program of its own for {@link LibrarySearchTest}: says what was loaded, or why nothing was. */
public final class LibraryUser {
  private LibraryUser() {}

  /** Opens the NCCL backend, or with an argument loads the CUDA runtime only. */
  public static void main(String[] arguments) {
    if (arguments.length > 0) {
      System.out.println("cudart from " + NativeLibrary.CUDART.load().path());
      return;
    }
    try (Backend backend = Backend.nccl()) {
      System.out.println("nccl from " + backend.versions().get("nccl library"));
      System.out.println("cudart from " + backend.versions().get("cuda runtime library"));
    } catch (LibraryNotFoundException e) {
      System.out.println("no " + e.library() + "\n" + e.getMessage());
    } catch (CudaException | IllegalCallerException e) {
      System.out.println(e.getMessage());
    }
  }
}
