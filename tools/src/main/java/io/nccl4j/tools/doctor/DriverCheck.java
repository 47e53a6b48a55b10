package io.nccl4j.tools.doctor;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Checks that there is a driver and that it is new enough for the libraries. */
final class DriverCheck {
  private static final String CUDA_COMPATIBILITY =
      "CUDA 13 needs driver 580 or later, CUDA 12 needs 525 or later";
  private static final String INSUFFICIENT = "cudaErrorInsufficientDriver";
  private static final Pattern MODULE_VERSION = Pattern.compile("\\b([0-9]{3}\\.[0-9.]+)\\b");
  private static final String NVIDIA = "0x10de";
  // PCI class of display controllers, which includes 3D controllers.
  private static final String DISPLAY_CLASS = "0x03";

  private DriverCheck() {}

  static List<Finding> findings(MachineState state) {
    ProbeResult probe = state.probe();
    if (probe.driver().isEmpty()) {
      return List.of(
          Finding.unchecked(
              "the driver version",
              "it is read through libcudart, which was not loaded",
              "fix the other errors, then run nccl4j doctor again"));
    }
    int driver = probe.driver().getAsInt();
    List<Finding> findings = new ArrayList<>();
    if (driver == 0) {
      findings.add(noDriver(state.machine()));
    } else {
      tooOldForNccl(state, driver).ifPresent(findings::add);
      Optional<Finding> runtime = runtime(probe, driver);
      runtime.ifPresent(findings::add);
      probe
          .cudaFailure()
          // A runtime that is too new fails with this error, and has been reported above.
          .filter(failure -> runtime.isEmpty() || !failure.error().equals(INSUFFICIENT))
          .flatMap(failure -> noDevice(failure, driver))
          .ifPresent(findings::add);
    }
    return findings;
  }

  /** Returns the version of the kernel module, such as 580.65.06. */
  static Optional<String> kernelModule(Machine machine) {
    return machine
        .text("/proc/driver/nvidia/version")
        .map(MODULE_VERSION::matcher)
        .filter(Matcher::find)
        .map(Matcher::group);
  }

  private static Finding noDriver(Machine machine) {
    Optional<String> module = kernelModule(machine);
    String meaning = "NCCL needs libcuda.so.1 and a GPU; only the reference backend can run here";
    if (module.isPresent() || machine.has("/dev/nvidiactl")) {
      return Finding.error(
          "the NVIDIA kernel module"
              + module.map(version -> " " + version).orElse("")
              + " is loaded, but libcuda.so.1 is missing or does not match it",
          meaning,
          "in a container, start it with --gpus all (NVIDIA Container Toolkit); otherwise reinstall"
              + " the driver so that kernel module and libcuda.so.1 have the same version");
    }
    List<String> gpus = gpusOnPciBus(machine);
    if (!gpus.isEmpty()) {
      return Finding.error(
          "no driver, but "
              + (gpus.size() == 1 ? "an NVIDIA GPU" : gpus.size() + " NVIDIA GPUs")
              + " on the PCI bus at "
              + String.join(", ", gpus),
          meaning,
          "install the NVIDIA driver (" + CUDA_COMPATIBILITY + ")");
    }
    return Finding.error(
        "no driver, and no NVIDIA GPU on the PCI bus",
        meaning,
        "run on a machine with an NVIDIA GPU, or use Backend.reference(n), which needs none");
  }

  private static List<String> gpusOnPciBus(Machine machine) {
    String bus = "/sys/bus/pci/devices";
    return machine.names(bus).stream()
        .filter(
            device ->
                starts(machine, bus + "/" + device + "/vendor", NVIDIA)
                    && starts(machine, bus + "/" + device + "/class", DISPLAY_CLASS))
        .toList();
  }

  private static boolean starts(Machine machine, String file, String prefix) {
    return machine.text(file).filter(text -> text.startsWith(prefix)).isPresent();
  }

  /** NCCL links its own CUDA runtime; the driver must support at least its major version. */
  private static Optional<Finding> tooOldForNccl(MachineState state, int driver) {
    return state
        .nccl()
        .flatMap(LibraryFile::builtForCuda)
        .filter(cuda -> major(cuda) > driver / 1000)
        .map(
            cuda ->
                Finding.error(
                    "libnccl was built for CUDA "
                        + cuda
                        + "; the driver supports only CUDA "
                        + text(driver),
                    "creating a communicator fails with 'CUDA driver version is insufficient'",
                    "update the driver ("
                        + CUDA_COMPATIBILITY
                        + "), or install an NCCL built for it (pip install nvidia-nccl-cu"
                        + driver / 1000
                        + ")"));
  }

  private static Optional<Finding> runtime(ProbeResult probe, int driver) {
    String runtime = probe.runtimeVersion().orElse(text(driver));
    if (major(runtime) > driver / 1000) {
      return Optional.of(tooOld("libcudart is CUDA " + runtime, driver));
    }
    if (major(runtime) == driver / 1000 && minor(runtime) > driver % 1000 / 10) {
      return Optional.of(
          Finding.note(
              "libcudart is CUDA " + runtime + ", the driver CUDA " + text(driver),
              "this works, since the major versions match; features new in " + runtime + " do not",
              "nothing, or update the driver"));
    }
    return Optional.empty();
  }

  private static Finding tooOld(String title, int driver) {
    return Finding.error(
        title + "; the driver supports only CUDA " + text(driver),
        "the CUDA runtime finds no GPU with an older driver",
        "update the driver ("
            + CUDA_COMPATIBILITY
            + "), or install libcudart "
            + driver / 1000
            + " and NCCL for it");
  }

  private static Optional<Finding> noDevice(ProbeResult.CudaFailure failure, int driver) {
    if (!failure.function().equals("cudaGetDeviceCount")) {
      return Optional.empty();
    }
    return Optional.of(
        switch (failure.error()) {
          case INSUFFICIENT -> tooOld("libcudart is too new", driver);
          case "cudaErrorNoDevice" ->
              Finding.error(
                  "the driver is installed, but reports no GPU",
                  "NCCL has no GPU to run on",
                  "check nvidia-smi, CUDA_VISIBLE_DEVICES and, in a container, --gpus");
          case "cudaErrorSystemNotReady" ->
              Finding.error(
                  "the GPUs are not ready: " + failure.message(),
                  "on machines with NVSwitch, GPUs are unusable until the fabric manager runs",
                  "start it: systemctl start nvidia-fabricmanager (same version as the driver)");
          case "cudaErrorSystemDriverMismatch", "cudaErrorCompatNotSupportedOnDevice" ->
              Finding.error(
                  "libcuda.so.1 does not match the kernel module: " + failure.message(),
                  "no GPU can be used until their versions match",
                  "reboot after a driver update; in a container, remove the cuda-compat package");
          default ->
              Finding.error(
                  "the GPUs cannot be used: " + failure.message(),
                  "NCCL has no GPU to run on",
                  "check nvidia-smi and the kernel log (dmesg, lines with NVRM or Xid)");
        });
  }

  private static int major(String version) {
    return Integer.parseInt(version.substring(0, version.indexOf('.')));
  }

  private static int minor(String version) {
    return Integer.parseInt(version.substring(version.indexOf('.') + 1));
  }

  /** Formats a version code: 13000 as 13.0. */
  static String text(int code) {
    return code / 1000 + "." + code % 1000 / 10;
  }
}
