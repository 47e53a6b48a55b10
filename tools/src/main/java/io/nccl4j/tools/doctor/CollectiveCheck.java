package io.nccl4j.tools.doctor;

import java.util.ArrayList;
import java.util.List;

/** Reports failures of the two all-reduces, on NCCL and on the reference backend. */
final class CollectiveCheck {
  private CollectiveCheck() {}

  static List<Finding> findings(MachineState state) {
    List<Finding> findings = new ArrayList<>();
    ProbeResult probe = state.probe();
    boolean explained =
        probe.missing().isPresent()
            || probe
                .cudaFailure()
                .filter(failure -> failure.function().equals("cudaGetDeviceCount"))
                .isPresent();
    if (!probe.succeeded()) {
      findings.add(explained ? notRun(probe) : failed(probe));
    }
    state
        .reference()
        .map(
            failure ->
                Finding.error(
                    "the all-reduce on the reference backend failed: " + failure,
                    "it needs only Java: this is a bug in nccl4j or a fault of the machine",
                    "report it with this output"))
        .ifPresent(findings::add);
    return findings;
  }

  private static Finding notRun(ProbeResult probe) {
    String reason =
        probe
            .missing()
            .map(missing -> "lib" + missing.library() + " could not be loaded")
            .or(() -> probe.cudaFailure().map(ProbeResult.CudaFailure::message))
            .orElseThrow();
    return Finding.unchecked(
        "the all-reduce on NCCL (not run)",
        "it stopped while " + probe.lastStep() + ": " + reason,
        "fix the errors above, then run nccl4j doctor again");
  }

  private static Finding failed(ProbeResult probe) {
    String at = probe.lastStep().isEmpty() ? "before its first step" : "while " + probe.lastStep();
    return switch (probe.end().kind()) {
      case TIMED_OUT ->
          Finding.error(
                  "the all-reduce on NCCL " + probe.end().text() + "; it hung " + at,
                  "a driver or library that hangs here hangs in every program",
                  "run nvidia-smi: if it hangs too, the driver is at fault; otherwise"
                      + " NCCL_DEBUG=INFO shows the last step; --timeout allows more time")
              .with(probe.output());
      case CRASHED ->
          Finding.error(
                  "the all-reduce process " + probe.end().text() + " " + at,
                  "native code crashed, and would crash every program that calls it",
                  "read the output: a library may not match the driver, or two copies are loaded")
              .with(probe.output());
      case ENDED ->
          Finding.error(
                  "the all-reduce on NCCL failed " + at + ": " + reason(probe),
                  "it is the smallest possible: one rank, " + AllReduceProbe.COUNT + " floats",
                  "the other findings may explain it; NCCL_DEBUG=INFO shows NCCL's messages")
              .with(probe.output());
    };
  }

  private static String reason(ProbeResult probe) {
    return probe
        .failure()
        .or(() -> probe.cudaFailure().map(ProbeResult.CudaFailure::message))
        .orElse("no reason was given");
  }
}
