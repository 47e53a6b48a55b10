package io.nccl4j.tools.evidence;

import java.lang.module.ModuleDescriptor.Version;
import java.util.Map;

/**
 * The results of the first step that the others depend on.
 *
 * @param usable whether collectives can run
 * @param libraries what the libraries are
 * @param device the name of the first device
 * @param devices the number of devices
 * @param nccl the release of NCCL, such as 2.28.9
 * @param ncclLibrary the path of the loaded libnccl
 * @param cudartLibrary the path of the loaded libcudart
 */
record Machine(
    boolean usable,
    Libraries libraries,
    String device,
    int devices,
    String nccl,
    String ncclLibrary,
    String cudartLibrary) {
  static final Machine NONE = new Machine(false, Libraries.NVIDIA, "", 0, "0", "", "");

  static Machine of(Outcome devices) {
    Map<String, String> facts = devices.report().facts();
    return devices.status() == Outcome.Status.PASSED
        ? new Machine(
            true,
            Libraries.of(facts.get(DeviceReport.LIBRARIES)),
            facts.get(DeviceReport.DEVICE),
            Integer.parseInt(facts.get(DeviceReport.DEVICES)),
            facts.get(DeviceReport.NCCL),
            facts.get(DeviceReport.NCCL_LIBRARY),
            facts.get(DeviceReport.CUDART_LIBRARY))
        : NONE;
  }

  /** Returns whether the devices are GPUs. */
  boolean hasGpus() {
    return libraries == Libraries.NVIDIA;
  }

  /** Returns whether NCCL is the stand-in's, whose ranks are threads of one process. */
  boolean standIn() {
    return libraries == Libraries.STAND_IN;
  }

  boolean ncclAtLeast(int major, int minor) {
    return atLeast(nccl, major, minor);
  }

  /** Returns whether a release of NCCL, such as 2.30.7, is that one or newer. */
  static boolean atLeast(String nccl, int major, int minor) {
    return Version.parse(nccl).compareTo(Version.parse(major + "." + minor)) >= 0;
  }
}
