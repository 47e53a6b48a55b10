package io.nccl4j.tools.doctor;

import io.nccl4j.rendezvous.LaunchEnvironment;
import java.util.Arrays;
import java.util.List;

/** How this process was launched: whether its host has a GPU for every rank. */
final class RanksCheck implements Check {
  private static final String SHARING = "NCCL_MULTI_RANK_GPU_ENABLE";
  private static final int[] SHARING_SINCE = {2, 30};

  @Override
  public String name() {
    return "ranks";
  }

  @Override
  public List<Finding> findings(MachineState evidence) {
    if (evidence.launch().isEmpty()) {
      return List.of(
          Finding.error(
              "the launcher's variables contradict each other: "
                  + evidence.launchProblem().orElse(""),
              "Launch.current() refuses them, because ranks would be numbered wrongly",
              "unset those that are left over from another launcher"));
    }
    LaunchEnvironment launch = evidence.launch().get();
    int visible = evidence.probe().gpus().size();
    if (launch.localSize().isEmpty() || launch.localSize().getAsInt() <= visible || visible == 0) {
      return List.of();
    }
    return List.of(finding(evidence, launch.localSize().getAsInt(), visible, launch.toString()));
  }

  private static Finding finding(MachineState evidence, int ranks, int visible, String launch) {
    Machine machine = evidence.machine();
    int gpus = Math.max(visible, machine.gpusOfTheDriver());
    boolean parts =
        machine.variable("CUDA_VISIBLE_DEVICES").filter(v -> v.contains("MIG-")).isPresent();
    if (ranks <= gpus || parts) {
      return Finding.unchecked(
          "whether every rank has a GPU of its own",
          "%d ranks are on this host, which has %d GPUs%s, but this rank sees only %d"
              .formatted(ranks, gpus, parts ? " in parts (MIG)" : "", visible),
          "nothing, if the launcher gives each rank another CUDA_VISIBLE_DEVICES");
    }
    String what =
        "%d ranks on this host share %d %s (%s)"
            .formatted(ranks, gpus, gpus == 1 ? "GPU" : "GPUs", launch);
    boolean shared =
        NcclVariable.of(SHARING, machine).filter(each -> !each.value().equals("0")).isPresent();
    if (shared && knowsSharing(evidence.ncclVersion().orElse("2.30"))) {
      return Finding.warning(
          what,
          "with " + SHARING + " NCCL 2.30 and later allow it; too many exhaust the GPU and hang",
          "keep to two ranks a GPU, with NCCL_MAX_CTAS of 4 or less and NCCL_NVLS_ENABLE=0");
    }
    return Finding.error(
        what,
        "NCCL refuses two ranks on one GPU (Duplicate GPU detected)"
            + (shared ? "; " + SHARING + " is for NCCL 2.30 and later" : ""),
        "start as many ranks as GPUs, or set " + SHARING + "=1 (NCCL 2.30 and later)");
  }

  private static boolean knowsSharing(String release) {
    int[] parts = Arrays.stream(release.split("\\.", -1)).mapToInt(Integer::parseInt).toArray();
    return Arrays.compare(parts, SHARING_SINCE) >= 0;
  }
}
