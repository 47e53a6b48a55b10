package io.nccl4j.tools.doctor;

import io.nccl4j.rendezvous.LaunchEnvironment;
import io.nccl4j.rendezvous.Launcher;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;

/** Lets every check look at the evidence, and sums up. */
final class CheckRunner {
  static final List<Check> CHECKS =
      List.of(
          new JavaCheck(),
          new LibrariesCheck(),
          new DriverCheck(),
          new VisibleDevicesCheck(),
          new ArchitectureCheck(),
          new RanksCheck(),
          new NetworkCheck(),
          new SharedMemoryCheck(),
          new LimitsCheck(),
          new MemoryCheck(),
          new VariablesCheck(),
          new ValuesCheck(),
          new CollectiveCheck());

  private CheckRunner() {}

  /** Returns what the checks say. */
  static Report of(MachineState evidence, List<Check> checks) {
    List<Report.CheckFinding> findings = new ArrayList<>();
    for (Check check : checks) {
      for (Finding finding : findings(check, evidence)) {
        findings.add(new Report.CheckFinding(check.name(), finding));
      }
    }
    findings.sort(Comparator.comparing(each -> each.finding().severity()));
    long errors =
        findings.stream().filter(each -> each.finding().severity() == Severity.ERROR).count();
    return new Report(
        found(evidence),
        List.copyOf(findings),
        checks.stream().map(Check::name).toList(),
        evidence.probe().succeeded() && errors == 0,
        verdict(evidence, errors));
  }

  /** One check that fails must not hide what the others find. */
  private static List<Finding> findings(Check check, MachineState evidence) {
    try {
      return check.findings(evidence);
    } catch (RuntimeException e) {
      return List.of(
          Finding.unchecked(
              check.name(), "the check failed: " + e, "look at what it names, or report this"));
    }
  }

  private static String verdict(MachineState evidence, long errors) {
    if (evidence.probe().succeeded() && errors == 0) {
      return evidence.standIn()
          ? "a collective can run, on the stand-in of nccl4j's tests, which is not NCCL"
          : "a collective can run on NCCL";
    }
    if (evidence.probe().succeeded()) {
      return "one rank can run, but "
          + errors
          + (errors == 1 ? " error stands" : " errors stand")
          + " against a collective of several";
    }
    return "no collective can run on NCCL here; "
        + (evidence.reference().isEmpty()
            ? "the reference backend works: Backend.reference(n)"
            : "the reference backend fails too");
  }

  private static Map<String, String> found(MachineState evidence) {
    ProbeResult probe = evidence.probe();
    Map<String, String> found = new LinkedHashMap<>();
    found.put("java", evidence.machine().java().toString());
    found.put("libnccl", nccl(evidence));
    found.put("libcudart", library(evidence, NativeLibraryName.CUDART, probe.runtimeVersion()));
    found.put("driver", driver(evidence));
    found.put("GPUs", probe.gpus().isEmpty() ? "none" : "" + probe.gpus().size());
    for (Gpu gpu : probe.gpus()) {
      found.put("GPU " + gpu.index(), gpu.name() + ", compute capability " + gpu.capability());
    }
    evidence.launch().map(CheckRunner::launch).ifPresent(text -> found.put("launch", text));
    found.put("all-reduce, NCCL", probe.sums().map(CheckRunner::sums).orElse("not run"));
    found.put(
        "all-reduce, reference",
        evidence
            .reference()
            .map(failure -> "failed: " + failure)
            .orElse(
                "%d ranks, %d floats, all right"
                    .formatted(ReferenceProbe.RANKS, ReferenceProbe.COUNT)));
    return found;
  }

  private static String launch(LaunchEnvironment launch) {
    if (launch.launcher() == Launcher.NONE) {
      return "without a launcher, as the only rank";
    }
    String local =
        launch.localRank().isPresent()
            ? ", number " + launch.localRank().getAsInt() + " on this host"
            : "";
    return "%s: rank %d of %d%s, id from %s"
        .formatted(launch.launcher(), launch.rank(), launch.size(), local, launch.idSource());
  }

  private static String sums(ProbeResult.Sums sums) {
    return "1 rank, %d floats, all right; %d ms with loading and making the communicator"
        .formatted(sums.count(), sums.milliseconds());
  }

  private static String nccl(MachineState evidence) {
    String text = library(evidence, NativeLibraryName.NCCL, evidence.ncclVersion());
    String cuda =
        evidence
            .nccl()
            .flatMap(LibraryFile::builtForCuda)
            .map(v -> ", built for CUDA " + v)
            .orElse("");
    String code =
        evidence.nccl().map(LibraryFile::architectures).filter(set -> !set.isEmpty()).stream()
            .map(set -> set.stream().map(Object::toString).collect(Collectors.joining(" ")))
            .map(list -> ", code for " + list)
            .findFirst()
            .orElse("");
    return text + cuda + code + (evidence.standIn() ? " [stand-in, not NCCL]" : "");
  }

  private static String library(
      MachineState evidence, NativeLibraryName library, Optional<String> version) {
    List<LibraryCopy> copies = evidence.copies(library);
    List<String> loaded = evidence.probe().mapped().getOrDefault(library.label(), List.of());
    if (copies.isEmpty() && loaded.isEmpty()) {
      return "not found";
    }
    String release = version.map(text -> text + ", ").orElse("");
    if (loaded.isEmpty()) {
      return release + copies.getFirst() + ", not loaded";
    }
    String source =
        copies.stream()
            .filter(copy -> copy.path().toString().equals(loaded.getFirst()))
            .map(copy -> " (" + copy.source() + ")")
            .findFirst()
            .orElse("");
    return release + String.join(" and ", loaded) + source;
  }

  private static String driver(MachineState evidence) {
    Optional<String> module = DriverCheck.kernelModule(evidence.machine());
    int driver = evidence.probe().driver().orElse(0);
    if (driver == 0) {
      return module.map(version -> "kernel module " + version + " alone").orElse("none");
    }
    return module.map(version -> version + ", ").orElse("")
        + "runs CUDA up to "
        + DriverCheck.text(driver);
  }
}
