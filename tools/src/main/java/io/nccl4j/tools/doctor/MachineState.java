package io.nccl4j.tools.doctor;

import io.nccl4j.internal.ffm.NativeLibrary;
import io.nccl4j.rendezvous.LaunchEnvironment;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * The input of the checks.
 *
 * @param machine the machine
 * @param probe the result of the all-reduce on NCCL
 * @param copies the files of each library on this machine, in nccl4j's search order
 * @param nccl the contents of the libnccl file in use; empty if there is none or it cannot be read
 * @param ncclProblem why that file cannot be read
 * @param launch how this process was launched; empty if the launcher's variables contradict each
 *     other
 * @param launchProblem the contradiction
 * @param reference why the all-reduce on the reference backend failed; empty if it was correct
 */
record MachineState(
    Machine machine,
    ProbeResult probe,
    Map<NativeLibrary, List<NativeLibrary.Copy>> copies,
    Optional<LibraryFile> nccl,
    Optional<String> ncclProblem,
    Optional<LaunchEnvironment> launch,
    Optional<String> launchProblem,
    Optional<String> reference) {
  /** The libraries that the NCCL backend loads. */
  static final List<NativeLibrary> LIBRARIES = List.of(NativeLibrary.NCCL, NativeLibrary.CUDART);

  /** The name of the emulated devices. */
  private static final String EMULATED_GPU = "nccl4j stand-in (no GPU)";

  /** Returns the release of the libnccl in use, such as 2.30.7. */
  Optional<String> ncclVersion() {
    return probe.ncclVersion().or(() -> nccl.flatMap(LibraryFile::version));
  }

  /** Returns whether the libnccl in use is the stand-in of nccl4j's tests. */
  boolean standIn() {
    return nccl.map(LibraryFile::standIn).orElse(false);
  }

  /** Returns whether NVIDIA's libnccl runs on the emulated CUDA of nccl4j's tests. */
  boolean emulatedCuda() {
    return !standIn() && probe.gpus().stream().anyMatch(gpu -> gpu.name().equals(EMULATED_GPU));
  }
}
