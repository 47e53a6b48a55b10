package io.nccl4j.tools.doctor;

import io.nccl4j.rendezvous.LaunchEnvironment;
import java.util.List;
import java.util.Optional;

/**
 * What the checks look at.
 *
 * @param machine the machine
 * @param trial what became of the all-reduce on NCCL
 * @param ncclCopies the copies of libnccl that can be found, the one that nccl4j tries first at the
 *     front
 * @param cudartCopies those of libcudart
 * @param nccl what the file of the libnccl that is used says of itself; empty if there is none or
 *     it cannot be read
 * @param ncclProblem why that file cannot be read
 * @param launch how this process was started; empty if the launcher's variables contradict each
 *     other
 * @param launchProblem that contradiction
 * @param reference why the all-reduce on the reference backend failed; empty if it was right
 */
record MachineState(
    Machine machine,
    ProbeResult probe,
    List<LibraryCopy> ncclCopies,
    List<LibraryCopy> cudartCopies,
    Optional<LibraryFile> nccl,
    Optional<String> ncclProblem,
    Optional<LaunchEnvironment> launch,
    Optional<String> launchProblem,
    Optional<String> reference) {

  /** Returns the copies of a library that can be found. */
  List<LibraryCopy> copies(NativeLibraryName library) {
    return library == NativeLibraryName.NCCL ? ncclCopies : cudartCopies;
  }

  /** Returns the release of the libnccl that is used, such as 2.30.7. */
  Optional<String> ncclVersion() {
    return probe.ncclVersion().or(() -> nccl.flatMap(LibraryFile::version));
  }

  /** Returns whether the libnccl that is used is the stand-in of nccl4j's tests. */
  boolean standIn() {
    return nccl.map(LibraryFile::standIn).orElse(false);
  }
}
