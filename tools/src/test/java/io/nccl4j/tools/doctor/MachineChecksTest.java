package io.nccl4j.tools.doctor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests of the checks on Java, driver and operating system. */
class MachineChecksTest {
  @TempDir Path root;

  private Fixture machine() {
    return new Fixture(root);
  }

  @Test
  void healthyMachineHasNoFindings() {
    assertEquals(List.of(), machine().titles(JavaCheck::findings));
    assertEquals(List.of(), machine().titles(DriverCheck::findings));
    assertEquals(List.of(), machine().titles(LimitsCheck::findings));
    assertEquals(List.of(), machine().titles(MemoryCheck::findings));
    assertEquals(List.of(), machine().titles(state -> SharedMemoryCheck.findings(state, 1)));
  }

  @Test
  void oldJavaIsAWarning() {
    Fixture machine = machine();
    machine.java = Runtime.Version.parse("25.0.2");
    assertEquals(
        List.of("warning: Java is 25.0.2, older than 25.0.3"), machine.titles(JavaCheck::findings));
    machine.java = Runtime.Version.parse("26");
    assertEquals(List.of(), machine.titles(JavaCheck::findings));
    machine.java = Runtime.Version.parse("25.0.3+9-LTS");
    assertEquals(List.of(), machine.titles(JavaCheck::findings));
  }

  @Test
  void missingNativeAccessNamesTheFlag() {
    Fixture machine = machine();
    machine.nativeAccess = false;
    Finding finding = machine.onlyFinding(JavaCheck::findings);
    assertEquals(Severity.WARNING, finding.severity());
    assertTrue(finding.remedy().contains("--enable-native-access=io.nccl4j"), finding.remedy());
  }

  @Test
  void missingDriverNamesGpusOnPciBus() {
    Fixture machine = machine().withoutGpu(0, "cudaErrorInsufficientDriver");
    assertEquals(
        List.of("error: no driver, and no NVIDIA GPU on the PCI bus"),
        machine.titles(DriverCheck::findings));
    String device = "/sys/bus/pci/devices/0000:01:00.0";
    machine.file(device + "/vendor", "0x10de\n").file(device + "/class", "0x030200\n");
    String audio = "/sys/bus/pci/devices/0000:01:00.1";
    machine.file(audio + "/vendor", "0x10de\n").file(audio + "/class", "0x040300\n");
    assertEquals(
        List.of("error: no driver, but an NVIDIA GPU on the PCI bus at 0000:01:00.0"),
        machine.titles(DriverCheck::findings));
  }

  @Test
  void kernelModuleWithoutLibcudaSuggestsContainer() {
    Fixture machine = machine().withoutGpu(0, "cudaErrorInsufficientDriver");
    machine.file(
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n");
    Finding finding = machine.onlyFinding(DriverCheck::findings);
    assertEquals(
        "the NVIDIA kernel module 580.65.06 is loaded, but libcuda.so.1 is missing or does not"
            + " match it",
        finding.title());
    assertTrue(finding.remedy().contains("--gpus all"), finding.remedy());
  }

  @Test
  void driverOlderThanRuntimeIsAnError() {
    Fixture machine = machine().withoutGpu(12080, "cudaErrorInsufficientDriver");
    machine.versions.put("cuda runtime", "13.0");
    assertEquals(
        List.of("error: libcudart is CUDA 13.0; the driver supports only CUDA 12.8"),
        machine.titles(DriverCheck::findings));
    machine.versions.remove("cuda runtime");
    assertEquals(
        List.of("error: libcudart is too new; the driver supports only CUDA 12.8"),
        machine.titles(DriverCheck::findings));
  }

  @Test
  void driverOfSameMajorVersionIsANote() {
    Fixture machine = machine();
    machine.versions.put("cuda runtime", "13.2");
    assertEquals(
        List.of("note: libcudart is CUDA 13.2, the driver CUDA 13.0"),
        machine.titles(DriverCheck::findings));
  }

  @Test
  void ncclForNewerCudaThanDriverIsAnError() {
    Fixture machine = machine();
    machine.driver = OptionalInt.of(12080);
    machine.versions.put("cuda runtime", "12.8");
    machine.nccl =
        Optional.of(
            new LibraryFile(
                Optional.of("2.30.7"),
                Optional.of("13.3"),
                false,
                java.util.Set.of(),
                java.util.Set.of()));
    Finding finding = machine.onlyFinding(DriverCheck::findings);
    assertEquals(
        "libnccl was built for CUDA 13.3; the driver supports only CUDA 12.8", finding.title());
    assertTrue(finding.remedy().contains("nvidia-nccl-cu12"), finding.remedy());
  }

  @Test
  void missingFabricManagerIsNamed() {
    Finding finding =
        machine().withoutGpu(13000, "cudaErrorSystemNotReady").onlyFinding(DriverCheck::findings);
    assertEquals(Severity.ERROR, finding.severity());
    assertTrue(finding.remedy().contains("nvidia-fabricmanager"), finding.remedy());
  }

  @Test
  void unknownDriverVersionIsUnchecked() {
    Fixture machine = machine();
    machine.driver = OptionalInt.empty();
    assertEquals(List.of("unchecked: the driver version"), machine.titles(DriverCheck::findings));
  }

  @Test
  void missingSharedMemoryIsAnError() throws Exception {
    Fixture machine = machine();
    Files.delete(root.resolve("dev/shm"));
    assertEquals(
        List.of("error: /dev/shm does not exist"), machine.titles(SharedMemoryCheck::findings));
  }

  @Test
  void smallSharedMemoryIsAWarning() {
    Finding finding =
        machine().onlyFinding(state -> SharedMemoryCheck.findings(state, Long.MAX_VALUE));
    assertEquals(Severity.WARNING, finding.severity());
    assertTrue(finding.title().startsWith("/dev/shm has "), finding.title());
    assertTrue(finding.remedy().contains("--shm-size=1g"), finding.remedy());
  }

  @Test
  void unwritableSharedMemoryIsAnError() throws Exception {
    Fixture machine = machine();
    assertEquals(List.of(), machine.titles(state -> SharedMemoryCheck.findings(state, 1)));
    assertEquals(List.of(), machine.machine().names("/dev/shm"));
    Path folder = root.resolve("dev/shm");
    Files.delete(folder);
    // Even root cannot create a file there.
    Files.createSymbolicLink(folder, Path.of("/proc/self"));
    Finding finding = machine.onlyFinding(state -> SharedMemoryCheck.findings(state, 1));
    assertTrue(finding.title().startsWith("/dev/shm is not writable: "), finding.title());
  }

  @Test
  void lowOpenFileLimitCountsRanks() {
    Fixture machine = machine().file("/proc/self/limits", Fixture.limits("4096", "unlimited"));
    machine.set("RANK", "0").set("WORLD_SIZE", "512");
    assertEquals(
        List.of(
            "warning: the limit on open files is 4096; at least 5120 is recommended for 512 ranks"),
        machine.titles(LimitsCheck::findings));
  }

  @Test
  void lockedMemoryLimitMattersWithInfiniband() {
    Fixture machine = machine().file("/proc/self/limits", Fixture.limits("1048576", "8388608"));
    assertEquals(List.of(), machine.titles(LimitsCheck::findings));
    machine.folder("/sys/class/infiniband/mlx5_0");
    assertEquals(
        List.of("warning: the limit on locked memory is 8 MiB, and this machine has InfiniBand"),
        machine.titles(LimitsCheck::findings));
  }

  @Test
  void limitsWithoutProcAreUnchecked() throws Exception {
    Fixture machine = machine();
    Files.delete(root.resolve("proc/self/limits"));
    assertEquals(
        List.of("unchecked: the limits on open files and locked memory"),
        machine.titles(LimitsCheck::findings));
  }

  @Test
  void containerWithLittleFreeMemoryIsAWarning() {
    Fixture machine = machine().file("/proc/self/cgroup", "0::/kubepods/pod7\n");
    machine
        .file("/sys/fs/cgroup/kubepods/memory.max", "max\n")
        .file("/sys/fs/cgroup/kubepods/pod7/memory.max", "2147483648\n")
        .file("/sys/fs/cgroup/kubepods/pod7/memory.current", "1610612736\n")
        .file("/sys/fs/cgroup/kubepods/pod7/memory.stat", "anon 9\ninactive_file 104857600\n");
    assertEquals(
        List.of(
            "warning: 612 MiB is left of the 2 GiB that the container may use"
                + " (/sys/fs/cgroup/kubepods/pod7/memory.max)"),
        machine.titles(MemoryCheck::findings));
    machine.file("/sys/fs/cgroup/kubepods/pod7/memory.max", "max\n");
    assertEquals(List.of(), machine.titles(MemoryCheck::findings));
  }

  @Test
  void controlGroupsVersionOneAreRead() {
    Fixture machine =
        machine()
            .file("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/docker/c\n")
            .file("/sys/fs/cgroup/memory/docker/c/memory.limit_in_bytes", "536870912\n")
            .file("/sys/fs/cgroup/memory/docker/c/memory.usage_in_bytes", "0\n");
    assertEquals(
        List.of(
            "warning: 512 MiB is left of the 512 MiB that the container may use"
                + " (/sys/fs/cgroup/memory/docker/c/memory.limit_in_bytes)"),
        machine.titles(MemoryCheck::findings));
  }
}
