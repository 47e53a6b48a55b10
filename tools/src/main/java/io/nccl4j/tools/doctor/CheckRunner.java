package io.nccl4j.tools.doctor;

import io.nccl4j.internal.ffm.NativeLibrary;
import io.nccl4j.rendezvous.LaunchEnvironment;
import io.nccl4j.rendezvous.Launcher;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;

/** Runs the checks and summarises their findings. */
final class CheckRunner {
  static final List<Check> CHECKS =
      List.of(
          new Check("java", JavaCheck::findings),
          new Check("libraries", LibrariesCheck::findings),
          new Check("driver", DriverCheck::findings),
          new Check("visible devices", VisibleDevicesCheck::findings),
          new Check("architecture", ArchitectureCheck::findings),
          new Check("ranks", RanksCheck::findings),
          new Check("network", NetworkCheck::findings),
          new Check("shared memory", SharedMemoryCheck::findings),
          new Check("limits", LimitsCheck::findings),
          new Check("container memory", MemoryCheck::findings),
          new Check("variables", VariablesCheck::findings),
          new Check("values", ValuesCheck::findings),
          new Check("all-reduce", CollectiveCheck::findings));

  private CheckRunner() {}

  /** Runs checks on a machine. */
  static Report of(MachineState state, List<Check> checks) {
    List<Report.CheckFinding> findings = new ArrayList<>();
    for (Check check : checks) {
      for (Finding finding : findings(check, state)) {
        findings.add(new Report.CheckFinding(check.name(), finding));
      }
    }
    findings.sort(Comparator.comparing(each -> each.finding().severity()));
    long errors =
        findings.stream().filter(each -> each.finding().severity() == Severity.ERROR).count();
    return new Report(
        found(state),
        List.copyOf(findings),
        checks.stream().map(Check::name).toList(),
        state.probe().succeeded() && errors == 0,
        verdict(state, errors));
  }

  /** Runs one check; if it throws, returns a finding that says so. */
  private static List<Finding> findings(Check check, MachineState state) {
    try {
      return check.findings().apply(state);
    } catch (RuntimeException e) {
      return List.of(
          Finding.unchecked(
              check.name(), "the check failed: " + e, "fix what the message names, or report it"));
    }
  }

  private static String verdict(MachineState state, long errors) {
    if (state.probe().succeeded() && errors == 0) {
      return state.standIn()
          ? "a collective can run, on the stand-in of nccl4j's tests, which is not NCCL"
          : state.emulatedCuda()
              ? "a collective can run on NCCL, on the emulated CUDA of nccl4j's tests"
              : "a collective can run on NCCL";
    }
    if (state.probe().succeeded()) {
      return "one rank can run, but "
          + errors
          + (errors == 1 ? " error prevents" : " errors prevent")
          + " a collective of several ranks";
    }
    return "no collective can run on NCCL here; "
        + (state.reference().isEmpty()
            ? "the reference backend works: Backend.reference(n)"
            : "the reference backend fails too");
  }

  private static Map<String, String> found(MachineState state) {
    ProbeResult probe = state.probe();
    Map<String, String> found = new LinkedHashMap<>();
    found.put("java", state.machine().java().toString());
    found.put("libnccl", nccl(state));
    found.put("libcudart", library(state, NativeLibrary.CUDART, probe.runtimeVersion()));
    found.put("driver", driver(state));
    found.put("GPUs", probe.gpus().isEmpty() ? "none" : "" + probe.gpus().size());
    for (Gpu gpu : probe.gpus()) {
      found.put("GPU " + gpu.index(), gpu.name() + ", compute capability " + gpu.capability());
    }
    state.launch().map(CheckRunner::launch).ifPresent(text -> found.put("launch", text));
    found.put("all-reduce, NCCL", probe.sums().map(CheckRunner::sums).orElse("not run"));
    found.put(
        "all-reduce, reference",
        state
            .reference()
            .map(failure -> "failed: " + failure)
            .orElse(
                "%d ranks, %d floats, OK".formatted(ReferenceProbe.RANKS, ReferenceProbe.COUNT)));
    return found;
  }

  private static String launch(LaunchEnvironment launch) {
    if (launch.launcher() == Launcher.NONE) {
      return "no launcher, one rank";
    }
    String local =
        launch.localRank().isPresent() ? ", local rank " + launch.localRank().getAsInt() : "";
    return "%s: rank %d of %d%s, id from %s"
        .formatted(launch.launcher(), launch.rank(), launch.size(), local, launch.idSource());
  }

  private static String sums(ProbeResult.Sums sums) {
    return "1 rank, %d floats, OK; %d ms including loading and creating the communicator"
        .formatted(sums.count(), sums.milliseconds());
  }

  private static String nccl(MachineState state) {
    String text = library(state, NativeLibrary.NCCL, state.ncclVersion());
    String cuda =
        state
            .nccl()
            .flatMap(LibraryFile::builtForCuda)
            .map(v -> ", built for CUDA " + v)
            .orElse("");
    String code =
        state.nccl().map(LibraryFile::architectures).filter(set -> !set.isEmpty()).stream()
            .map(set -> set.stream().map(Object::toString).collect(Collectors.joining(" ")))
            .map(list -> ", code for " + list)
            .findFirst()
            .orElse("");
    return text + cuda + code + (state.standIn() ? " [stand-in, not NCCL]" : "");
  }

  private static String library(
      MachineState state, NativeLibrary library, Optional<String> version) {
    List<NativeLibrary.Copy> copies = state.copies().getOrDefault(library, List.of());
    List<String> loaded = state.probe().mapped(library);
    if (copies.isEmpty() && loaded.isEmpty()) {
      return "not found";
    }
    String release = version.map(text -> text + ", ").orElse("");
    if (loaded.isEmpty()) {
      NativeLibrary.Copy first =
          copies.stream()
              .filter(copy -> copy.fault() == null)
              .findFirst()
              .orElseGet(copies::getFirst);
      return "%s%s (%s), %s"
          .formatted(
              release,
              first.path(),
              first.source(),
              first.fault() == null ? "not loaded" : "unusable: " + first.fault());
    }
    String source =
        copies.stream()
            .filter(copy -> copy.path().toString().equals(loaded.getFirst()))
            .map(copy -> " (" + copy.source() + ")")
            .findFirst()
            .orElse("");
    return release + String.join(" and ", loaded) + source;
  }

  private static String driver(MachineState state) {
    Optional<String> module = DriverCheck.kernelModule(state.machine());
    int driver = state.probe().driver().orElse(0);
    if (driver == 0) {
      return module.map(version -> "kernel module " + version + " only").orElse("none");
    }
    return module.map(version -> version + ", ").orElse("")
        + "supports CUDA up to "
        + DriverCheck.text(driver);
  }
}
