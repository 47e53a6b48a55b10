package io.nccl4j.tools.doctor;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;

/** The two libraries: found or not, and whether there is more than one copy of either. */
final class LibrariesCheck implements Check {
  @Override
  public String name() {
    return "libraries";
  }

  @Override
  public List<Finding> findings(MachineState evidence) {
    List<Finding> findings = new ArrayList<>();
    evidence.probe().missing().map(LibrariesCheck::missing).ifPresent(findings::add);
    if (nowhere(evidence)) {
      findings.add(
          Finding.error(
              "libnccl is not found",
              "the NCCL backend cannot be opened",
              remedy(NativeLibraryName.NCCL)));
    }
    evidence
        .ncclProblem()
        .map(
            problem ->
                Finding.error(
                    "libnccl cannot be read: " + problem,
                    "what cannot be read cannot be loaded",
                    remedy(NativeLibraryName.NCCL)))
        .ifPresent(findings::add);
    if (evidence.standIn()) {
      findings.add(
          Finding.note(
              "libnccl is the stand-in of nccl4j's tests, not NVIDIA's library",
              "it moves data in host memory: what it says of collectives says nothing of a GPU",
              "unset NCCL4J_NCCL_LIBRARY and NCCL4J_CUDART_LIBRARY to look at NVIDIA's libraries"));
    }
    for (NativeLibraryName library : NativeLibraryName.values()) {
      mapped(library, evidence).ifPresent(findings::add);
    }
    copies(evidence).ifPresent(findings::add);
    return findings;
  }

  /** Where there is no device, nobody has tried to load libnccl. */
  private static boolean nowhere(MachineState evidence) {
    return evidence.probe().missing().isEmpty()
        && evidence.ncclCopies().isEmpty()
        && evidence.probe().mapped().getOrDefault("nccl", List.of()).isEmpty();
  }

  private static String remedy(NativeLibraryName library) {
    return (library == NativeLibraryName.NCCL
            ? "install NCCL 2.18 or later (pip install nvidia-nccl-cu13)"
            : "install the CUDA runtime 12 or 13 (pip install nvidia-cuda-runtime)")
        + ", or name its file with "
        + library.variable();
  }

  private static Finding missing(ProbeResult.Missing missing) {
    NativeLibraryName library =
        missing.library().equals("nccl") ? NativeLibraryName.NCCL : NativeLibraryName.CUDART;
    return Finding.error(
            "lib" + missing.library() + " could not be loaded; tried:",
            "the NCCL backend cannot be opened",
            remedy(library))
        .with(missing.attempts());
  }

  private static Optional<Finding> mapped(NativeLibraryName library, MachineState evidence) {
    List<String> files = evidence.probe().mapped().getOrDefault(library.label(), List.of());
    if (files.size() < 2) {
      return Optional.empty();
    }
    return Optional.of(
        Finding.warning(
                files.size() + " copies of lib" + library.label() + " are loaded in one process:",
                "each has a state of its own; communicators, streams or settings of one mean"
                    + " nothing to the other, and mixing them crashes",
                "keep one: look at LD_PRELOAD, LD_LIBRARY_PATH and NCCL plugins, or name it for"
                    + " nccl4j with "
                    + library.variable())
            .with(files));
  }

  private static Optional<Finding> copies(MachineState evidence) {
    List<String> loaded = evidence.probe().mapped().getOrDefault("nccl", List.of());
    List<LibraryCopy> copies =
        evidence.ncclCopies().stream()
            .sorted(Comparator.comparing(copy -> !loaded.contains(copy.path().toString())))
            .toList();
    if (copies.size() < 2) {
      return Optional.empty();
    }
    List<String> lines = copies.stream().map(LibrariesCheck::describe).toList();
    String what = copies.size() + " copies of libnccl can be found; nccl4j takes the first:";
    String remedy =
        "name one for every program: NCCL4J_NCCL_LIBRARY for nccl4j, LD_LIBRARY_PATH for others";
    boolean differ = copies.stream().map(copy -> version(copy).orElse("?")).distinct().count() > 1;
    return Optional.of(
        (differ
                ? Finding.warning(
                    what,
                    "another program, or a Python rank, may take another release; ranks of"
                        + " different releases cannot form a communicator",
                    remedy)
                : Finding.note(
                    what,
                    "all are of one release, so it matters only in a process that loads two",
                    remedy))
            .with(lines));
  }

  private static String describe(LibraryCopy copy) {
    return version(copy).map(version -> version + ": ").orElse("unknown release: ") + copy;
  }

  private static Optional<String> version(LibraryCopy copy) {
    try {
      return LibraryFile.read(copy.path()).version();
    } catch (IOException e) {
      return Optional.of("unreadable (" + e.getMessage() + ")");
    }
  }
}
