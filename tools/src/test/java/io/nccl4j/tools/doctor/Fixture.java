package io.nccl4j.tools.doctor;

import io.nccl4j.internal.ffm.NativeLibrary;
import io.nccl4j.rendezvous.LaunchEnvironment;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.TreeMap;
import java.util.function.Function;

/**
 * A simulated machine under a directory, and the result of the probe on it. Initially it is healthy
 * and has one GPU.
 */
final class Fixture {
  final Map<String, String> environment = new TreeMap<>();
  final List<NetworkPort> ports = new ArrayList<>();
  final List<Gpu> gpus = new ArrayList<>();
  final Map<String, String> versions = new LinkedHashMap<>();
  final Map<String, List<String>> mapped = new TreeMap<>();
  final List<NativeLibrary.Copy> ncclCopies = new ArrayList<>();
  final List<String> output = new ArrayList<>();
  Runtime.Version java = Runtime.Version.parse("25.0.3");
  boolean nativeAccess = true;
  OptionalInt driver = OptionalInt.of(13000);
  ProbeResult.ProcessEnd end =
      new ProbeResult.ProcessEnd(ProbeResult.ProcessEnd.Kind.ENDED, "ended");
  String lastStep = "done";
  Optional<ProbeResult.Missing> missing = Optional.empty();
  Optional<ProbeResult.CudaFailure> cudaFailure = Optional.empty();
  Optional<String> failure = Optional.empty();
  Optional<ProbeResult.Sums> sums = Optional.of(new ProbeResult.Sums(1000, 100));
  Optional<LibraryFile> nccl = Optional.empty();
  Optional<String> ncclProblem = Optional.empty();
  Optional<String> reference = Optional.empty();

  private final Path root;

  Fixture(Path root) {
    this.root = root;
    folder("/dev/shm");
    file("/proc/self/limits", limits("1048576", "unlimited"));
    gpus.add(new Gpu(0, "NVIDIA H100", 90));
    versions.put("nccl", "2.30.7");
    versions.put("cuda runtime", "13.0");
    port("lo", "127.0.0.1");
    port("eth0", "10.0.0.5");
  }

  static String limits(String openFiles, String lockedMemory) {
    return """
    Limit                     Soft Limit           Hard Limit           Units
    Max open files            1024                 %-20s files
    Max locked memory         65536                %-20s bytes
    Max address space         unlimited            unlimited            bytes
    """
        .formatted(openFiles, lockedMemory);
  }

  /** Removes all GPUs: listing devices fails with the given error. */
  Fixture withoutGpu(int driverVersion, String error) {
    gpus.clear();
    sums = Optional.empty();
    driver = OptionalInt.of(driverVersion);
    lastStep = "looking for devices";
    cudaFailure =
        Optional.of(new ProbeResult.CudaFailure("cudaGetDeviceCount", error, error + " message"));
    return this;
  }

  Fixture set(String name, String value) {
    environment.put(name, value);
    return this;
  }

  Fixture port(String name, String... addresses) {
    try {
      List<InetAddress> parsed = new ArrayList<>();
      for (String address : addresses) {
        parsed.add(InetAddress.getByName(address));
      }
      ports.add(new NetworkPort(name, true, parsed));
      return this;
    } catch (UnknownHostException e) {
      throw new UncheckedIOException(e);
    }
  }

  Path folder(String path) {
    try {
      return Files.createDirectories(root.resolve(path.substring(1)));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  Fixture file(String path, String text) {
    try {
      folder(path.substring(0, path.lastIndexOf('/')));
      Files.writeString(root.resolve(path.substring(1)), text);
      return this;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  Machine machine() {
    return new Machine(root, Map.copyOf(environment), ports, java, nativeAccess);
  }

  MachineState state() {
    Optional<LaunchEnvironment> launch = Optional.empty();
    Optional<String> problem = Optional.empty();
    try {
      launch = Optional.of(LaunchEnvironment.from(environment));
    } catch (IllegalArgumentException e) {
      problem = Optional.of(e.getMessage());
    }
    ProbeResult probe =
        new ProbeResult(
            end,
            lastStep,
            driver,
            versions,
            gpus,
            missing,
            cudaFailure,
            failure,
            mapped,
            sums,
            output);
    return new MachineState(
        machine(),
        probe,
        Map.of(NativeLibrary.NCCL, ncclCopies),
        nccl,
        ncclProblem,
        launch,
        problem,
        reference);
  }

  /** Returns the severity and title of each finding of a check. */
  List<String> titles(Function<MachineState, List<Finding>> check) {
    return check.apply(state()).stream()
        .map(each -> each.severity().name().toLowerCase(Locale.ROOT) + ": " + each.title())
        .toList();
  }

  /** Returns the only finding of a check. */
  Finding onlyFinding(Function<MachineState, List<Finding>> check) {
    List<Finding> findings = check.apply(state());
    if (findings.size() != 1) {
      throw new AssertionError("expected one finding, got " + findings);
    }
    return findings.getFirst();
  }
}
