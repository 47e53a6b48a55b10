package io.nccl4j.tools.doctor;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The driver: whether there is one, and whether it is new enough for the libraries. */
final class DriverCheck implements Check {
  private static final String CUDA_COMPATIBILITY =
      "CUDA 13 needs driver 580 or later, CUDA 12 needs 525 or later";
  private static final String INSUFFICIENT = "cudaErrorInsufficientDriver";
  private static final Pattern MODULE_VERSION = Pattern.compile("\\b([0-9]{3}\\.[0-9.]+)\\b");
  private static final String NVIDIA = "0x10de";
  // Display controllers, of which 3D controllers are a kind.
  private static final String DISPLAY_CLASS = "0x03";

  @Override
  public String name() {
    return "driver";
  }

  @Override
  public List<Finding> findings(MachineState evidence) {
    ProbeResult probe = evidence.probe();
    if (probe.driver().isEmpty()) {
      return List.of(
          Finding.unchecked(
              "the driver's version",
              "it is read through libcudart, which was not loaded",
              "fix the other errors, and run this again"));
    }
    int driver = probe.driver().getAsInt();
    List<Finding> findings = new ArrayList<>();
    if (driver == 0) {
      findings.add(noDriver(evidence.machine()));
    } else {
      tooOldForNccl(evidence, driver).ifPresent(findings::add);
      Optional<Finding> runtime = runtime(probe, driver);
      runtime.ifPresent(findings::add);
      probe
          .cudaFailure()
          // That is what a runtime which is too new answers, and then it has been said.
          .filter(failure -> runtime.isEmpty() || !failure.error().equals(INSUFFICIENT))
          .flatMap(failure -> noDevice(failure, driver))
          .ifPresent(findings::add);
    }
    return findings;
  }

  /** Returns the version of the kernel's part of the driver, such as 580.65.06. */
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
          "the kernel has NVIDIA's driver"
              + module.map(version -> " " + version).orElse("")
              + ", but libcuda.so.1 is not found or does not fit it",
          meaning,
          "in a container, start it with --gpus all (NVIDIA Container Toolkit); else reinstall the"
              + " driver so that kernel module and libcuda.so.1 have one version");
    }
    List<String> gpus = gpusOnTheBus(machine);
    if (!gpus.isEmpty()) {
      return Finding.error(
          "no driver; on the PCI bus "
              + (gpus.size() == 1 ? "is an NVIDIA GPU" : "are " + gpus.size() + " NVIDIA GPUs")
              + " at "
              + String.join(", ", gpus),
          meaning,
          "install NVIDIA's driver (" + CUDA_COMPATIBILITY + ")");
    }
    return Finding.error(
        "no driver, and no NVIDIA GPU on the PCI bus",
        meaning,
        "run on a machine with an NVIDIA GPU, or use Backend.reference(n), which needs none");
  }

  private static List<String> gpusOnTheBus(Machine machine) {
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

  /** NCCL has a CUDA runtime of its own, whose major version the driver must have too. */
  private static Optional<Finding> tooOldForNccl(MachineState evidence, int driver) {
    return evidence
        .nccl()
        .flatMap(LibraryFile::builtForCuda)
        .filter(cuda -> major(cuda) > driver / 1000)
        .map(
            cuda ->
                Finding.error(
                    "libnccl is built for CUDA " + cuda + ", the driver runs CUDA " + text(driver),
                    "every initialisation fails with 'CUDA driver version is insufficient'",
                    "update the driver ("
                        + CUDA_COMPATIBILITY
                        + "), or install NCCL for the driver's CUDA (pip install nvidia-nccl-cu"
                        + driver / 1000
                        + ")"));
  }

  private static Optional<Finding> runtime(ProbeResult trial, int driver) {
    String runtime = trial.runtimeVersion().orElse(text(driver));
    if (major(runtime) > driver / 1000) {
      return Optional.of(tooOld("libcudart is of CUDA " + runtime, driver));
    }
    if (major(runtime) == driver / 1000 && minor(runtime) > driver % 1000 / 10) {
      return Optional.of(
          Finding.note(
              "libcudart is of CUDA " + runtime + ", the driver of CUDA " + text(driver),
              "it works: they have one major version; what the newer minor version added does not",
              "nothing, or update the driver"));
    }
    return Optional.empty();
  }

  private static Finding tooOld(String what, int driver) {
    return Finding.error(
        what + ", the driver runs CUDA " + text(driver),
        "the driver is older than the runtime, which finds no device with it",
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
          case INSUFFICIENT -> tooOld("libcudart is newer", driver);
          case "cudaErrorNoDevice" ->
              Finding.error(
                  "the driver is there, but shows no GPU",
                  "NCCL has nothing to run on",
                  "look at nvidia-smi, CUDA_VISIBLE_DEVICES, and in a container at --gpus");
          case "cudaErrorSystemNotReady" ->
              Finding.error(
                  "the GPUs are not ready: " + failure.message(),
                  "on machines with NVSwitch, GPUs wait for the fabric manager",
                  "start it: systemctl start nvidia-fabricmanager, of exactly the driver's version");
          case "cudaErrorSystemDriverMismatch", "cudaErrorCompatNotSupportedOnDevice" ->
              Finding.error(
                  "libcuda.so.1 does not fit the kernel's driver: " + failure.message(),
                  "no GPU can be used until they do",
                  "reboot after a driver update; in a container, remove the cuda-compat package");
          default ->
              Finding.error(
                  "the GPUs cannot be used: " + failure.message(),
                  "NCCL has nothing to run on",
                  "look at nvidia-smi and at the kernel's log (dmesg, lines with NVRM and Xid)");
        });
  }

  private static int major(String version) {
    return Integer.parseInt(version.substring(0, version.indexOf('.')));
  }

  private static int minor(String version) {
    return Integer.parseInt(version.substring(version.indexOf('.') + 1));
  }

  /** Returns a version code such as 13000 as people write it. */
  static String text(int code) {
    return code / 1000 + "." + code % 1000 / 10;
  }
}
