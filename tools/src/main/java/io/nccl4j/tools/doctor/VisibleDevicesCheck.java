package io.nccl4j.tools.doctor;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** Checks the variables that hide GPUs from a process. */
final class VisibleDevicesCheck {
  private static final String CUDA = "CUDA_VISIBLE_DEVICES";
  private static final String CONTAINER = "NVIDIA_VISIBLE_DEVICES";

  private VisibleDevicesCheck() {}

  static List<Finding> findings(MachineState state) {
    List<Finding> findings = new ArrayList<>();
    String cuda = state.machine().environment().get(CUDA);
    if (cuda != null) {
      hidden(cuda, state).ifPresent(findings::add);
    }
    String container = state.machine().environment().get(CONTAINER);
    if (container != null
        && state.probe().gpus().isEmpty()
        && List.of("", "none", "void").contains(container)) {
      findings.add(
          Finding.warning(
              CONTAINER + "=" + container + " requests no GPU from the container runtime",
              "the container gets neither GPU devices nor libcuda.so.1",
              "set it to all, or to the GPUs that the container should have"));
    }
    return findings;
  }

  private static Optional<Finding> hidden(String value, MachineState state) {
    int gpus = state.machine().driverGpuCount();
    String[] entries = value.strip().split(",", -1);
    for (int i = 0; i < entries.length; i++) {
      if (!exists(entries[i].strip(), gpus)) {
        return Optional.of(
            i == 0 ? all(value, gpus) : some(value, entries[i].strip(), i, entries.length));
      }
    }
    return Optional.empty();
  }

  /** Returns whether an entry may name a GPU; {@code gpus} is 0 if their number is unknown. */
  private static boolean exists(String entry, int gpus) {
    if (entry.matches("[0-9]{1,9}")) {
      return gpus == 0 || Integer.parseInt(entry) < gpus;
    }
    return entry.startsWith("GPU-") || entry.startsWith("MIG-");
  }

  private static Finding all(String value, int gpus) {
    return Finding.error(
        CUDA + "='" + value + "' hides all GPUs" + (gpus == 0 ? "" : " (there are " + gpus + ")"),
        "CUDA reports no device, so NCCL has no GPU to run on",
        "unset it, or list GPU numbers, starting at 0");
  }

  private static Finding some(String value, String entry, int visible, int entries) {
    return Finding.warning(
        "%s=%s: '%s' names no GPU".formatted(CUDA, value, entry),
        "CUDA ignores it and all entries after it: only the first %d of %d are visible"
            .formatted(visible, entries),
        "correct the list");
  }
}
