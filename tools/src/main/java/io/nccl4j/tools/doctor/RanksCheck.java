package io.nccl4j.tools.doctor;

import io.nccl4j.rendezvous.LaunchEnvironment;
import io.nccl4j.tools.perf.SharedGpus;
import java.util.List;

/** Checks that this host has a GPU for every rank launched on it. */
final class RanksCheck {
  private static final String SHARING = SharedGpus.VARIABLE;

  private RanksCheck() {}

  static List<Finding> findings(MachineState state) {
    if (state.launch().isEmpty()) {
      return List.of(
          Finding.error(
              "the launcher's variables contradict each other: " + state.launchProblem().orElse(""),
              "LaunchEnvironment.current() rejects them, because rank numbers would be wrong",
              "unset those left over from another launcher"));
    }
    LaunchEnvironment launch = state.launch().get();
    int visible = state.probe().gpus().size();
    if (launch.localSize().isEmpty() || launch.localSize().getAsInt() <= visible || visible == 0) {
      return List.of();
    }
    return List.of(finding(state, launch.localSize().getAsInt(), visible, launch.toString()));
  }

  private static Finding finding(MachineState state, int ranks, int visible, String launch) {
    Machine machine = state.machine();
    int gpus = Math.max(visible, machine.driverGpuCount());
    boolean mig =
        machine.variable("CUDA_VISIBLE_DEVICES").filter(v -> v.contains("MIG-")).isPresent();
    if (ranks <= gpus || mig) {
      return Finding.unchecked(
          "whether every rank has its own GPU",
          "%d ranks run on this host, which has %d GPUs%s, but this rank sees only %d"
              .formatted(ranks, gpus, mig ? " partitioned by MIG" : "", visible),
          "nothing, if the launcher gives each rank a different CUDA_VISIBLE_DEVICES");
    }
    String title =
        "%d ranks on this host share %d %s (%s)"
            .formatted(ranks, gpus, gpus == 1 ? "GPU" : "GPUs", launch);
    boolean shared =
        NcclVariable.of(SHARING, machine)
            .map(NcclVariable::value)
            .filter(SharedGpus::isEnabled)
            .isPresent();
    if (shared && SharedGpus.isSupported(state.ncclVersion().orElse("2.30"))) {
      return Finding.warning(
          title,
          SHARING + " lets NCCL 2.30 and later do so; too many ranks exhaust the GPU and hang",
          "run at most two ranks per GPU, with NCCL_MAX_CTAS=4 or less and NCCL_NVLS_ENABLE=0");
    }
    return Finding.error(
        title,
        "NCCL rejects two ranks on one GPU (Duplicate GPU detected)"
            + (shared ? "; " + SHARING + " needs NCCL 2.30 or later" : ""),
        "start at most one rank per GPU, or set " + SHARING + "=1 (NCCL 2.30 or later)");
  }
}
