package io.nccl4j.tools.doctor;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.Collectors;

/**
 * Checks that the libnccl file has device code for every GPU. Code for one architecture only, such
 * as sm_90a, counts as general code of that architecture.
 */
final class ArchitectureCheck {
  private ArchitectureCheck() {}

  static List<Finding> findings(MachineState state) {
    List<Gpu> gpus = state.probe().gpus();
    if (gpus.isEmpty() || state.standIn() || state.emulatedCuda()) {
      return List.of();
    }
    Optional<LibraryFile> library = state.nccl().filter(file -> !file.architectures().isEmpty());
    if (library.isEmpty()) {
      return List.of(
          Finding.unchecked(
              "whether libnccl has code for these GPUs",
              "no device code was recognised in the libnccl file",
              "go by the all-reduce, which was tried on the first GPU"));
    }
    List<Finding> findings = new ArrayList<>();
    for (Gpu gpu : gpus) {
      finding(gpu, library.get()).ifPresent(findings::add);
    }
    return findings;
  }

  private static Optional<Finding> finding(Gpu gpu, LibraryFile library) {
    String code =
        library.architectures().stream().map(Object::toString).collect(Collectors.joining(", "));
    String title =
        "GPU %d (%s) has compute capability %s; libnccl has code for %s"
            .formatted(gpu.index(), gpu.name(), gpu.capability(), code);
    if (!library.runsOn(gpu.computeCapability())) {
      return Optional.of(
          Finding.error(
              title,
              "no kernel of this libnccl runs on this GPU: 'no kernel image is available'",
              "install an NCCL built for this GPU: a newer release for a newer GPU, one for an"
                  + " older CUDA (pip install nvidia-nccl-cu12) for an older GPU"));
    }
    boolean hasMachineCode =
        library.architectures().stream()
            .anyMatch(each -> !each.ptx() && each.runsOn(gpu.computeCapability()));
    return hasMachineCode
        ? Optional.empty()
        : Optional.of(
            Finding.warning(
                title,
                "the driver compiles NCCL's kernels for this GPU at first use, which is slow and"
                    + " needs a driver at least as new as the CUDA that NCCL was built with",
                "install a newer NCCL, which has machine code for this GPU"));
  }
}
