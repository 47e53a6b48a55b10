package io.nccl4j.tools.doctor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.Checkout;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Function;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Tests of the checks on variable names and values. */
class VariablesTest {
  private static final Set<String> KNOWN =
      Set.of("NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_P2P_LEVEL");

  @TempDir Path root;

  private Fixture machine;

  @BeforeEach
  void createNcclWithFourVariables() {
    machine = new Fixture(root);
    machine.nccl =
        Optional.of(
            new LibraryFile(Optional.of("2.30.7"), Optional.of("13.3"), false, KNOWN, Set.of()));
  }

  @Test
  void knownNamesAreFine() {
    machine
        .set("NCCL_DEBUG", "INFO")
        .set("NCCL_VERSION", "2.30.7-1")
        .set("NCCL_TESTS_DEVICE", "0")
        .set("RCCL_DEBUG", "1")
        .set("NCCL4J_SECRET_FILE", "/run/secret")
        .set("NCCL4J_STANDIN_DEVICES", "3")
        .set("NCCL4J_EMULATED_NCCL", "/lib/libnccl.so.2")
        .set("PATH", "/bin");
    assertEquals(List.of(), machine.titles(VariablesCheck::findings));
  }

  @ParameterizedTest
  @CsvSource({
    "NCCL_SOKET_IFNAME, is not known to NCCL 2.30.7; did you mean NCCL_SOCKET_IFNAME?",
    "NCCL_DEBGU, is not known to NCCL 2.30.7; did you mean NCCL_DEBUG?",
    "NCCL_SHM_USE_CUDA_MEMORY, is not known to NCCL 2.30.7",
    "NCLL_DEBUG, looks like NCCL_DEBUG",
    "nccl_debug, looks like NCCL_DEBUG",
    "NCCL4J_WORLDSIZE, is not a variable of nccl4j; did you mean NCCL4J_WORLD_SIZE?",
    "NCCL4J_FOO, is not a variable of nccl4j"
  })
  void unknownNameIsAWarning(String name, String title) {
    machine.set(name, "1");
    assertEquals(
        List.of("warning: " + name + " " + title), machine.titles(VariablesCheck::findings));
  }

  @Test
  void namesInConfigurationFileAreChecked() {
    machine.set("NCCL_CONF_FILE", "/cluster/nccl.conf");
    machine.nccl = withKnown("NCCL_CONF_FILE");
    machine.file("/cluster/nccl.conf", "NCCL_IB_DISABEL=1\n");
    assertEquals(
        List.of(
            "warning: NCCL_IB_DISABEL (in /cluster/nccl.conf) is not known to NCCL 2.30.7; did you"
                + " mean NCCL_IB_DISABLE?"),
        machine.titles(VariablesCheck::findings));
  }

  private static Optional<LibraryFile> withKnown(String more) {
    Set<String> known = new TreeSet<>(KNOWN);
    known.add(more);
    return Optional.of(
        new LibraryFile(Optional.of("2.30.7"), Optional.of("13.3"), false, known, Set.of()));
  }

  @Test
  void namesWithoutLibraryAreUnchecked() {
    machine.nccl = Optional.empty();
    assertEquals(List.of(), machine.titles(VariablesCheck::findings));
    machine.set("NCCL_DEBGU", "INFO");
    assertEquals(
        List.of("unchecked: the names of NCCL_ variables"),
        machine.titles(VariablesCheck::findings));
  }

  @Test
  void ownNamesMatchTheSources() throws IOException {
    Pattern name = Pattern.compile("NCCL4J_[A-Z][A-Z_]+[A-Z]");
    Set<String> inSources = new TreeSet<>();
    for (String folder : List.of("src/main", "reference/src/main")) {
      try (Stream<Path> files = Files.walk(Checkout.ROOT.resolve(folder))) {
        for (Path file : files.filter(each -> each.toString().endsWith(".java")).toList()) {
          name.matcher(Files.readString(file)).results().forEach(hit -> inSources.add(hit.group()));
        }
      }
    }
    assertEquals(new TreeSet<>(VariablesCheck.OWN), inSources);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "NCCL_DEBUG|info",
        "NCCL_DEBUG_SUBSYS|^INIT,coll",
        "NCCL_ALGO|ring,collnetdirect;allreduce:tree",
        "NCCL_PROTO|^LL128;allreduce:LL128",
        "NCCL_P2P_LEVEL|PHB",
        "NCCL_P2P_LEVEL|2",
        "NCCL_SOCKET_FAMILY|AF_INET6",
        "NCCL_IB_DISABLE|1",
        "NCCL_IB_GID_INDEX|-1",
        "NCCL_BUFFSIZE|0x400000",
        "NCCL_NET|Socket",
        "NCCL_DEBUG_FILE|nccl.%h.%p"
      })
  void validValueIsFine(String name, String value) {
    machine.set(name, value);
    assertEquals(List.of(), machine.titles(ValuesCheck::findings));
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "NCCL_DEBUG|FOO|NCCL_DEBUG=FOO is not a valid value",
        "NCCL_DEBUG_SUBSYS|INIT,NETWORK|NCCL_DEBUG_SUBSYS=INIT,NETWORK: 'NETWORK' is unknown",
        "NCCL_P2P_LEVEL|phb|NCCL_P2P_LEVEL=phb is not a valid value",
        "NCCL_SOCKET_FAMILY|IPV4|NCCL_SOCKET_FAMILY=IPV4 is not a valid value",
        "NCCL_IB_DISABLE|true|NCCL_IB_DISABLE=true is not a whole number",
        "NCCL_MAX_NCHANNELS|4 8|NCCL_MAX_NCHANNELS=4 8 is not a whole number",
        "NCCL_TOPO_FILE|/no/topo.xml|NCCL_TOPO_FILE=/no/topo.xml: no such file",
        "NCCL_DEBUG_FILE|/no/log.%p|NCCL_DEBUG_FILE=/no/log.%p: no such directory"
      })
  void invalidValueIsAWarning(String name, String value, String title) {
    machine.set(name, value);
    assertEquals(List.of("warning: " + title), machine.titles(ValuesCheck::findings));
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "NCCL_ALGO|Rings|NCCL_ALGO=Rings: 'Rings' is unknown",
        "NCCL_ALGO|sum:ring|NCCL_ALGO=sum:ring: 'sum' is not a function",
        "NCCL_PROTO|LL;Simple|NCCL_PROTO=LL;Simple: only the first list may omit its function"
      })
  void rejectedListIsAnError(String name, String value, String title) {
    machine.set(name, value);
    assertEquals(List.of("error: " + title), machine.titles(ValuesCheck::findings));
  }

  @Test
  void numberThatNcclReadsIsNamed() {
    machine.set("NCCL_IB_DISABLE", "true");
    assertEquals("NCCL reads it as 0", machine.onlyFinding(ValuesCheck::findings).meaning());
    machine.set("NCCL_IB_DISABLE", "1x");
    assertEquals("NCCL reads it as 1", machine.onlyFinding(ValuesCheck::findings).meaning());
  }

  @Test
  void distanceCountsEdits() {
    assertEquals(0, Spelling.distance("NCCL", "NCCL"));
    assertEquals(1, Spelling.distance("NCLC", "NCCL"));
    assertEquals(1, Spelling.distance("NCL", "NCCL"));
    assertEquals(3, Spelling.distance("kitten", "sitting"));
    assertEquals(Optional.empty(), Spelling.nearest("NCCL_FOO_BAR", KNOWN));
  }

  @Test
  void hidingAllDevicesIsAnError() {
    machine.folder("/proc/driver/nvidia/gpus/0000:01:00.0");
    machine.folder("/proc/driver/nvidia/gpus/0000:02:00.0");
    Function<MachineState, List<Finding>> check = VisibleDevicesCheck::findings;
    for (String value : List.of("", "-1", "NoDevFiles", "2")) {
      machine.set("CUDA_VISIBLE_DEVICES", value);
      assertEquals(
          List.of("error: CUDA_VISIBLE_DEVICES='" + value + "' hides all GPUs (there are 2)"),
          machine.titles(check));
    }
    for (String value : List.of("0", "1,0", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6")) {
      machine.set("CUDA_VISIBLE_DEVICES", value);
      assertEquals(List.of(), machine.titles(check), value);
    }
    machine.set("CUDA_VISIBLE_DEVICES", "1,2,0");
    assertEquals(
        List.of("warning: CUDA_VISIBLE_DEVICES=1,2,0: '2' names no GPU"), machine.titles(check));
  }

  @Test
  void containerWithoutGpuIsAWarning() {
    machine.withoutGpu(0, "cudaErrorInsufficientDriver").set("NVIDIA_VISIBLE_DEVICES", "void");
    assertEquals(
        List.of("warning: NVIDIA_VISIBLE_DEVICES=void requests no GPU from the container runtime"),
        machine.titles(VisibleDevicesCheck::findings));
  }

  private Fixture launched(int localRanks) {
    return machine
        .set("RANK", "0")
        .set("WORLD_SIZE", "" + localRanks)
        .set("LOCAL_RANK", "0")
        .set("LOCAL_WORLD_SIZE", "" + localRanks);
  }

  @Test
  void moreRanksThanGpusAreAnErrorUnlessShared() {
    launched(2);
    Finding finding = machine.onlyFinding(RanksCheck::findings);
    assertEquals(Severity.ERROR, finding.severity());
    assertTrue(finding.title().startsWith("2 ranks on this host share 1 GPU ("), finding.title());
    for (String value : List.of("0", "0x0", "true", "")) {
      machine.set("NCCL_MULTI_RANK_GPU_ENABLE", value);
      assertEquals(Severity.ERROR, machine.onlyFinding(RanksCheck::findings).severity(), value);
    }
    machine.set("NCCL_MULTI_RANK_GPU_ENABLE", "1");
    assertEquals(Severity.WARNING, machine.onlyFinding(RanksCheck::findings).severity());
    machine.versions.put("nccl", "2.28.9");
    Finding older = machine.onlyFinding(RanksCheck::findings);
    assertEquals(Severity.ERROR, older.severity());
    assertTrue(older.meaning().contains("needs NCCL 2.30 or later"), older.meaning());
  }

  @Test
  void ranksThatSeeOneGpuEachAreUnchecked() {
    launched(2);
    machine.folder("/proc/driver/nvidia/gpus/0000:01:00.0");
    machine.folder("/proc/driver/nvidia/gpus/0000:02:00.0");
    assertEquals(
        List.of("unchecked: whether every rank has its own GPU"),
        machine.titles(RanksCheck::findings));
  }

  @Test
  void ranksOnPartsOfAGpuAreUnchecked() {
    launched(2).set("CUDA_VISIBLE_DEVICES", "MIG-0f3d2b1e");
    Finding finding = machine.onlyFinding(RanksCheck::findings);
    assertEquals(Severity.UNCHECKED, finding.severity());
    assertTrue(finding.meaning().contains("partitioned by MIG"), finding.meaning());
  }

  @Test
  void oneRankPerGpuIsFine() {
    assertEquals(List.of(), machine.titles(RanksCheck::findings));
    assertEquals(List.of(), launched(1).titles(RanksCheck::findings));
  }

  @Test
  void contradictoryLaunchersAreAnError() {
    machine.set("RANK", "5").set("WORLD_SIZE", "2");
    Finding finding = machine.onlyFinding(RanksCheck::findings);
    assertEquals(Severity.ERROR, finding.severity());
    assertTrue(finding.title().contains("RANK"), finding.title());
  }
}
