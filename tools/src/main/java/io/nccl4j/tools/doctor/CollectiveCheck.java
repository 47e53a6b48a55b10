package io.nccl4j.tools.doctor;

import java.util.ArrayList;
import java.util.List;

/** The all-reduces that were really run, on NCCL and on the reference backend. */
final class CollectiveCheck implements Check {
  @Override
  public String name() {
    return "all-reduce";
  }

  @Override
  public List<Finding> findings(MachineState evidence) {
    List<Finding> findings = new ArrayList<>();
    ProbeResult probe = evidence.probe();
    boolean explained =
        probe.missing().isPresent()
            || probe
                .cudaFailure()
                .filter(failure -> failure.function().equals("cudaGetDeviceCount"))
                .isPresent();
    if (!probe.succeeded()) {
      findings.add(explained ? notRun(probe) : failed(probe));
    }
    evidence
        .reference()
        .map(
            failure ->
                Finding.error(
                    "the all-reduce on the reference backend failed: " + failure,
                    "it needs nothing but Java: this is a bug of nccl4j's, or of the machine",
                    "report it with this output"))
        .ifPresent(findings::add);
    return findings;
  }

  private static Finding notRun(ProbeResult trial) {
    String reason =
        trial
            .missing()
            .map(missing -> "lib" + missing.library() + " could not be loaded")
            .or(() -> trial.cudaFailure().map(ProbeResult.CudaFailure::message))
            .orElseThrow();
    return Finding.unchecked(
        "the all-reduce on NCCL, which was not run",
        "it stopped while " + trial.lastStep() + ": " + reason,
        "fix the errors above, and run this again");
  }

  private static Finding failed(ProbeResult trial) {
    String at = trial.lastStep().isEmpty() ? "before it began" : "while " + trial.lastStep();
    return switch (trial.end().kind()) {
      case TIMED_OUT ->
          Finding.error(
                  "the all-reduce on NCCL " + trial.end().text() + "; it was stuck " + at,
                  "a driver or a library that hangs here hangs in every program",
                  "look at nvidia-smi, which hangs too if it is the driver; else NCCL_DEBUG=INFO"
                      + " shows the last step; --timeout gives it longer")
              .with(trial.output());
      case CRASHED ->
          Finding.error(
                  "the process of the all-reduce " + trial.end().text() + " " + at,
                  "native code crashed, and takes every program with it",
                  "look at the output: a library that does not fit the driver, or one of two copies")
              .with(trial.output());
      case ENDED ->
          Finding.error(
                  "the all-reduce on NCCL failed " + at + ": " + reason(trial),
                  "it is the smallest that there is: one rank, " + AllReduceProbe.COUNT + " floats",
                  "the other findings may say why; NCCL's own words are with NCCL_DEBUG=INFO")
              .with(trial.output());
    };
  }

  private static String reason(ProbeResult trial) {
    return trial
        .failure()
        .or(() -> trial.cudaFailure().map(ProbeResult.CudaFailure::message))
        .orElse("no reason was given");
  }
}
