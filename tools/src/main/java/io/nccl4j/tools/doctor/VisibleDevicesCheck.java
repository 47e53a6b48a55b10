package io.nccl4j.tools.doctor;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** The variables that hide GPUs from a process. */
final class VisibleDevicesCheck implements Check {
  private static final String CUDA = "CUDA_VISIBLE_DEVICES";
  private static final String CONTAINER = "NVIDIA_VISIBLE_DEVICES";

  @Override
  public String name() {
    return "visible devices";
  }

  @Override
  public List<Finding> findings(MachineState evidence) {
    List<Finding> findings = new ArrayList<>();
    String cuda = evidence.machine().environment().get(CUDA);
    if (cuda != null) {
      hidden(cuda, evidence).ifPresent(findings::add);
    }
    String container = evidence.machine().environment().get(CONTAINER);
    if (container != null
        && evidence.probe().gpus().isEmpty()
        && List.of("", "none", "void").contains(container)) {
      findings.add(
          Finding.warning(
              CONTAINER + "=" + container + " asks the container runtime for no GPU",
              "it then passes neither devices nor libcuda.so.1 into the container",
              "set it to all, or to the GPUs that the container is to have"));
    }
    return findings;
  }

  private static Optional<Finding> hidden(String value, MachineState evidence) {
    int gpus = evidence.machine().gpusOfTheDriver();
    String[] entries = value.strip().split(",", -1);
    for (int i = 0; i < entries.length; i++) {
      if (!exists(entries[i].strip(), gpus)) {
        return Optional.of(
            i == 0 ? all(value, gpus) : some(value, entries[i].strip(), i, entries.length));
      }
    }
    return Optional.empty();
  }

  /** Says whether an entry may name a GPU; 0 stands for an unknown number of them. */
  private static boolean exists(String entry, int gpus) {
    if (entry.matches("[0-9]{1,9}")) {
      return gpus == 0 || Integer.parseInt(entry) < gpus;
    }
    return entry.startsWith("GPU-") || entry.startsWith("MIG-");
  }

  private static Finding all(String value, int gpus) {
    return Finding.error(
        CUDA + "='" + value + "' hides all GPUs" + (gpus == 0 ? "" : " (there are " + gpus + ")"),
        "CUDA shows no device, and NCCL has nothing to run on",
        "unset it, or name GPUs by number from 0 on");
  }

  private static Finding some(String value, String entry, int visible, int entries) {
    return Finding.warning(
        "%s=%s: '%s' names no GPU".formatted(CUDA, value, entry),
        "CUDA stops reading there: only the first %d of %d are visible".formatted(visible, entries),
        "correct the list");
  }
}
