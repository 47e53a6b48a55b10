package io.nccl4j.tools.evidence;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * What the first step found, as far as the others depend on it.
 *
 * @param usable whether collectives can be run at all
 * @param standIn whether the libraries are the tests' stand-in
 * @param device the first device's name
 * @param devices how many there are
 * @param nccl the release of NCCL, such as 2.28.9
 * @param ncclLibrary the file that was loaded
 * @param cudartLibrary likewise
 */
record Machine(
    boolean usable,
    boolean standIn,
    String device,
    int devices,
    String nccl,
    String ncclLibrary,
    String cudartLibrary) {
  static final Machine NONE = new Machine(false, false, "", 0, "0", "", "");

  private static final List<String> VERSIONS =
      List.of("CUDA runtime", "CUDA of the driver", DeviceReport.DRIVER, "Java");

  static Machine of(Outcome devices) {
    Map<String, String> facts = devices.report().facts();
    return devices.status() == Outcome.Status.PASSED
        ? new Machine(
            true,
            facts.containsKey(DeviceReport.STAND_IN),
            facts.get(DeviceReport.DEVICE),
            Integer.parseInt(facts.get(DeviceReport.DEVICES)),
            facts.get(DeviceReport.NCCL),
            facts.get(DeviceReport.NCCL_LIBRARY),
            facts.get(DeviceReport.CUDART_LIBRARY))
        : NONE;
  }

  /** Returns the versions of what the first step found, but for NCCL. */
  static String versions(Outcome devices) {
    Map<String, String> facts = devices.report().facts();
    return VERSIONS.stream()
        .filter(facts::containsKey)
        .map(name -> name + " " + facts.get(name))
        .collect(Collectors.joining(", "));
  }

  boolean ncclAtLeast(int major, int minor) {
    int[] parts = Arrays.stream(nccl.split("\\.", -1)).mapToInt(Integer::parseInt).toArray();
    return parts[0] > major || (parts[0] == major && parts.length > 1 && parts[1] >= minor);
  }
}
