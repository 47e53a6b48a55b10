package io.nccl4j.tools.doctor;

import io.nccl4j.internal.ffm.NativeLibrary;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;

/** Checks that both libraries are found, and that there is only one copy of each. */
final class LibrariesCheck {
  private LibrariesCheck() {}

  static List<Finding> findings(MachineState state) {
    List<Finding> findings = new ArrayList<>();
    state.probe().missing().map(LibrariesCheck::missing).ifPresent(findings::add);
    if (ncclNotFound(state)) {
      findings.add(
          Finding.error(
                  copiesOfNccl(state).isEmpty()
                      ? "libnccl was not found"
                      : "no copy of libnccl can be loaded; found:",
                  "the NCCL backend cannot be opened",
                  remedy(NativeLibrary.NCCL))
              .with(copiesOfNccl(state).stream().map(LibrariesCheck::describe).toList()));
    }
    state
        .ncclProblem()
        .map(
            problem ->
                Finding.error(
                    "libnccl cannot be read: " + problem,
                    "the NCCL backend cannot load it",
                    remedy(NativeLibrary.NCCL)))
        .ifPresent(findings::add);
    if (state.standIn()) {
      findings.add(
          Finding.note(
              "libnccl is the stand-in of nccl4j's tests, not NVIDIA's library",
              "it moves data in host memory: its results say nothing about a GPU",
              "unset NCCL4J_NCCL_LIBRARY and NCCL4J_CUDART_LIBRARY to check NVIDIA's libraries"));
    }
    if (state.emulatedCuda()) {
      findings.add(
          Finding.note(
              "the CUDA runtime is the emulation of nccl4j's tests, not NVIDIA's library",
              "there is no GPU, and kernels are nccl4j's own: results say nothing about a GPU",
              "unset NCCL4J_CUDART_LIBRARY and LD_LIBRARY_PATH to check NVIDIA's libraries"));
    }
    for (NativeLibrary library : MachineState.LIBRARIES) {
      mapped(library, state).ifPresent(findings::add);
    }
    copies(state).ifPresent(findings::add);
    return findings;
  }

  /**
   * Returns whether no libnccl can be loaded, although the probe may not have tried to load one.
   */
  private static boolean ncclNotFound(MachineState state) {
    return state.probe().missing().isEmpty()
        && copiesOfNccl(state).stream().allMatch(copy -> copy.fault() != null)
        && state.probe().mapped(NativeLibrary.NCCL).isEmpty();
  }

  private static List<NativeLibrary.Copy> copiesOfNccl(MachineState state) {
    return state.copies().getOrDefault(NativeLibrary.NCCL, List.of());
  }

  private static String remedy(NativeLibrary library) {
    return (library == NativeLibrary.NCCL
            ? "install NCCL 2.18 or later (pip install nvidia-nccl-cu13)"
            : "install the CUDA runtime 12 or 13 (pip install nvidia-cuda-runtime)")
        + ", or set "
        + library.variable()
        + " to its path";
  }

  private static Finding missing(ProbeResult.Missing missing) {
    NativeLibrary library =
        missing.library().equals("nccl") ? NativeLibrary.NCCL : NativeLibrary.CUDART;
    return Finding.error(
            "lib" + missing.library() + " could not be loaded; tried:",
            "the NCCL backend cannot be opened",
            remedy(library))
        .with(missing.attempts());
  }

  private static Optional<Finding> mapped(NativeLibrary library, MachineState state) {
    List<String> files = state.probe().mapped(library);
    if (files.size() < 2) {
      return Optional.empty();
    }
    return Optional.of(
        Finding.warning(
                files.size() + " copies of lib" + library.label() + " are loaded in one process:",
                "each copy has its own state: a communicator or stream of one is invalid in the"
                    + " other, and mixing them crashes",
                "keep one: check LD_PRELOAD, LD_LIBRARY_PATH and NCCL plugins, or set "
                    + library.variable()
                    + " to the copy that the others load")
            .with(files));
  }

  private static Optional<Finding> copies(MachineState state) {
    List<String> loaded = state.probe().mapped(NativeLibrary.NCCL);
    List<NativeLibrary.Copy> copies =
        copiesOfNccl(state).stream()
            .sorted(
                Comparator.comparing(
                        (NativeLibrary.Copy copy) -> !loaded.contains(copy.path().toString()))
                    .thenComparing(copy -> copy.fault() != null))
            .toList();
    if (copies.size() < 2 || ncclNotFound(state)) {
      return Optional.empty();
    }
    List<String> lines = copies.stream().map(LibrariesCheck::describe).toList();
    String title =
        copies.size()
            + " copies of libnccl were found"
            + (state.probe().missing().isPresent() ? ":" : "; nccl4j uses the first:");
    String remedy =
        "select one for all programs: NCCL4J_NCCL_LIBRARY for nccl4j, LD_LIBRARY_PATH for others";
    boolean differ = copies.stream().map(copy -> version(copy).orElse("?")).distinct().count() > 1;
    return Optional.of(
        (differ
                ? Finding.warning(
                    title,
                    "another program, or a Python rank, may load another release; ranks with"
                        + " different releases cannot form a communicator",
                    remedy)
                : Finding.note(
                    title,
                    "all are the same release, so this matters only to a process that loads two",
                    remedy))
            .with(lines));
  }

  private static String describe(NativeLibrary.Copy copy) {
    return "%s: %s (%s)"
        .formatted(version(copy).orElse("unknown release"), copy.path(), copy.source());
  }

  private static Optional<String> version(NativeLibrary.Copy copy) {
    if (copy.fault() != null) {
      return Optional.of("unusable (" + copy.fault() + ")");
    }
    try {
      return LibraryFile.read(copy.path()).version();
    } catch (IOException e) {
      return Optional.of("unreadable (" + e.getMessage() + ")");
    }
  }
}
