package io.nccl4j.tools.doctor;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.Collectors;

/**
 * Whether libnccl has code for every GPU, read off the architectures in its file. Variants for one
 * architecture alone (such as sm_90a) are not told apart from general ones.
 */
final class ArchitectureCheck implements Check {
  @Override
  public String name() {
    return "architecture";
  }

  @Override
  public List<Finding> findings(MachineState evidence) {
    List<Gpu> gpus = evidence.probe().gpus();
    if (gpus.isEmpty() || evidence.standIn()) {
      return List.of();
    }
    Optional<LibraryFile> library = evidence.nccl().filter(file -> !file.architectures().isEmpty());
    if (library.isEmpty()) {
      return List.of(
          Finding.unchecked(
              "whether libnccl has code for these GPUs",
              "no device code was recognised in its file",
              "trust the all-reduce, which has run or failed on the first GPU"));
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
    String what =
        "GPU %d (%s) has compute capability %s; libnccl has code for %s"
            .formatted(gpu.index(), gpu.name(), gpu.capability(), code);
    if (!library.runsOn(gpu.computeCapability())) {
      return Optional.of(
          Finding.error(
              what,
              "no kernel of this libnccl runs on it: 'no kernel image is available'",
              "install an NCCL built for it: a newer one for a newer GPU, one for an older CUDA"
                  + " (pip install nvidia-nccl-cu12) for an older GPU"));
    }
    boolean compiled =
        library.architectures().stream()
            .anyMatch(each -> !each.ptx() && each.runsOn(gpu.computeCapability()));
    return compiled
        ? Optional.empty()
        : Optional.of(
            Finding.warning(
                what,
                "the driver compiles its kernels for this GPU at first use, which takes long, and"
                    + " needs a driver as new as the CUDA that NCCL was built with",
                "install a newer NCCL, which has machine code for it"));
  }
}
