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
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Names that nothing reads, and values that cannot be. */
class VariablesTest {
  private static final Set<String> KNOWN =
      Set.of("NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_P2P_LEVEL");

  @TempDir Path root;

  private Fixture machine;

  @BeforeEach
  void anNcclThatKnowsFourVariables() {
    machine = new Fixture(root);
    machine.nccl =
        Optional.of(
            new LibraryFile(Optional.of("2.30.7"), Optional.of("13.3"), false, KNOWN, Set.of()));
  }

  @Test
  void namesThatAreKnownOrOfOthersAreNoFinding() {
    machine
        .set("NCCL_DEBUG", "INFO")
        .set("NCCL_VERSION", "2.30.7-1")
        .set("NCCL_TESTS_DEVICE", "0")
        .set("RCCL_DEBUG", "1")
        .set("NCCL4J_SECRET", "0123456789abcdef")
        .set("PATH", "/bin");
    assertEquals(List.of(), machine.said(new VariablesCheck()));
  }

  @ParameterizedTest
  @CsvSource({
    "NCCL_SOKET_IFNAME, is not known to NCCL 2.30.7; did you mean NCCL_SOCKET_IFNAME?",
    "NCCL_DEBGU, is not known to NCCL 2.30.7; did you mean NCCL_DEBUG?",
    "NCCL_SHM_USE_CUDA_MEMORY, is not known to NCCL 2.30.7",
    "NCLL_DEBUG, looks like NCCL_DEBUG",
    "nccl_debug, looks like NCCL_DEBUG",
    "NCCL4J_WORLDSIZE, is no variable of nccl4j's; did you mean NCCL4J_WORLD_SIZE?",
    "NCCL4J_FOO, is no variable of nccl4j's"
  })
  void aNameThatNothingReadsIsAWarning(String name, String what) {
    machine.set(name, "1");
    assertEquals(List.of("warning: " + name + " " + what), machine.said(new VariablesCheck()));
  }

  @Test
  void aNameInAConfigurationFileIsLookedAtToo() {
    machine.set("NCCL_CONF_FILE", "/cluster/nccl.conf");
    machine.nccl = withKnown("NCCL_CONF_FILE");
    machine.file("/cluster/nccl.conf", "NCCL_IB_DISABEL=1\n");
    assertEquals(
        List.of(
            "warning: NCCL_IB_DISABEL (in /cluster/nccl.conf) is not known to NCCL 2.30.7; did you"
                + " mean NCCL_IB_DISABLE?"),
        machine.said(new VariablesCheck()));
  }

  private static Optional<LibraryFile> withKnown(String more) {
    Set<String> known = new TreeSet<>(KNOWN);
    known.add(more);
    return Optional.of(
        new LibraryFile(Optional.of("2.30.7"), Optional.of("13.3"), false, known, Set.of()));
  }

  @Test
  void withoutALibraryToAskNamesAreUnchecked() {
    machine.nccl = Optional.empty();
    assertEquals(List.of(), machine.said(new VariablesCheck()));
    machine.set("NCCL_DEBGU", "INFO");
    assertEquals(
        List.of("unchecked: the names of NCCL_ variables"), machine.said(new VariablesCheck()));
  }

  @Test
  void nccl4jsOwnNamesAreThoseInItsSources() throws IOException {
    Pattern name = Pattern.compile("NCCL4J_[A-Z][A-Z_]+[A-Z]");
    Set<String> inSources = new TreeSet<>();
    try (Stream<Path> files = Files.walk(Checkout.ROOT.resolve("src/main/java"))) {
      for (Path file : files.filter(each -> each.toString().endsWith(".java")).toList()) {
        name.matcher(Files.readString(file)).results().forEach(hit -> inSources.add(hit.group()));
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
  void aValueThatNcclTakesIsNoFinding(String name, String value) {
    machine.set(name, value);
    assertEquals(List.of(), machine.said(new ValuesCheck()));
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "NCCL_DEBUG|FOO|NCCL_DEBUG=FOO is no value of it",
        "NCCL_DEBUG_SUBSYS|INIT,NETWORK|NCCL_DEBUG_SUBSYS=INIT,NETWORK: 'NETWORK' is no part of NCCL",
        "NCCL_P2P_LEVEL|phb|NCCL_P2P_LEVEL=phb is no value of it",
        "NCCL_SOCKET_FAMILY|IPV4|NCCL_SOCKET_FAMILY=IPV4 is no value of it",
        "NCCL_IB_DISABLE|true|NCCL_IB_DISABLE=true is not a whole number",
        "NCCL_MAX_NCHANNELS|4 8|NCCL_MAX_NCHANNELS=4 8 is not a whole number",
        "NCCL_TOPO_FILE|/no/topo.xml|NCCL_TOPO_FILE=/no/topo.xml: there is no such file",
        "NCCL_DEBUG_FILE|/no/log.%p|NCCL_DEBUG_FILE=/no/log.%p: there is no such folder"
      })
  void aValueThatNcclDoesNotTakeIsAWarning(String name, String value, String what) {
    machine.set(name, value);
    assertEquals(List.of("warning: " + what), machine.said(new ValuesCheck()));
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "NCCL_ALGO|Rings|NCCL_ALGO=Rings: 'Rings' is unknown",
        "NCCL_ALGO|sum:ring|NCCL_ALGO=sum:ring: 'sum' is no function",
        "NCCL_PROTO|LL;Simple|NCCL_PROTO=LL;Simple: only the first list may be without a function"
      })
  void aListThatNcclRefusesIsAnError(String name, String value, String what) {
    machine.set(name, value);
    assertEquals(List.of("error: " + what), machine.said(new ValuesCheck()));
  }

  @Test
  void whatNcclReadsInsteadOfAWordIsSaid() {
    machine.set("NCCL_IB_DISABLE", "true");
    assertEquals("NCCL reads it as 0", machine.only(new ValuesCheck()).meaning());
    machine.set("NCCL_IB_DISABLE", "1x");
    assertEquals("NCCL reads it as 1", machine.only(new ValuesCheck()).meaning());
  }

  @Test
  void distancesCountSlipsOfTheFinger() {
    assertEquals(0, Spelling.distance("NCCL", "NCCL"));
    assertEquals(1, Spelling.distance("NCLC", "NCCL"));
    assertEquals(1, Spelling.distance("NCL", "NCCL"));
    assertEquals(3, Spelling.distance("kitten", "sitting"));
    assertEquals(Optional.empty(), Spelling.nearest("NCCL_FOO_BAR", KNOWN));
  }

  @Test
  void visibleDevicesThatHideEverythingAreAnError() {
    machine.folder("/proc/driver/nvidia/gpus/0000:01:00.0");
    machine.folder("/proc/driver/nvidia/gpus/0000:02:00.0");
    Check check = new VisibleDevicesCheck();
    for (String value : List.of("", "-1", "NoDevFiles", "2")) {
      machine.set("CUDA_VISIBLE_DEVICES", value);
      assertEquals(
          List.of("error: CUDA_VISIBLE_DEVICES='" + value + "' hides all GPUs (there are 2)"),
          machine.said(check));
    }
    for (String value : List.of("0", "1,0", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6")) {
      machine.set("CUDA_VISIBLE_DEVICES", value);
      assertEquals(List.of(), machine.said(check), value);
    }
    machine.set("CUDA_VISIBLE_DEVICES", "1,2,0");
    assertEquals(
        List.of("warning: CUDA_VISIBLE_DEVICES=1,2,0: '2' names no GPU"), machine.said(check));
  }

  @Test
  void aContainerThatAskedForNoGpuIsToldSo() {
    machine.withoutGpu(0, "cudaErrorInsufficientDriver").set("NVIDIA_VISIBLE_DEVICES", "void");
    assertEquals(
        List.of("warning: NVIDIA_VISIBLE_DEVICES=void asks the container runtime for no GPU"),
        machine.said(new VisibleDevicesCheck()));
  }

  private Fixture launched(int localRanks) {
    return machine
        .set("RANK", "0")
        .set("WORLD_SIZE", "" + localRanks)
        .set("LOCAL_RANK", "0")
        .set("LOCAL_WORLD_SIZE", "" + localRanks);
  }

  @Test
  void moreRanksThanGpusAreAnErrorUnlessNcclIsToldToShare() {
    launched(2);
    Finding finding = machine.only(new RanksCheck());
    assertEquals(Severity.ERROR, finding.severity());
    assertTrue(finding.what().startsWith("2 ranks on this host share 1 GPU ("), finding.what());
    machine.set("NCCL_MULTI_RANK_GPU_ENABLE", "1");
    assertEquals(Severity.WARNING, machine.only(new RanksCheck()).severity());
    machine.versions.put("nccl", "2.28.9");
    Finding older = machine.only(new RanksCheck());
    assertEquals(Severity.ERROR, older.severity());
    assertTrue(older.meaning().contains("is for NCCL 2.30 and later"), older.meaning());
  }

  @Test
  void ranksThatSeeOneGpuEachAreUncheckedNotWrong() {
    launched(2);
    machine.folder("/proc/driver/nvidia/gpus/0000:01:00.0");
    machine.folder("/proc/driver/nvidia/gpus/0000:02:00.0");
    assertEquals(
        List.of("unchecked: whether every rank has a GPU of its own"),
        machine.said(new RanksCheck()));
  }

  @Test
  void ranksOnPartsOfAGpuAreUnchecked() {
    launched(2).set("CUDA_VISIBLE_DEVICES", "MIG-0f3d2b1e");
    Finding finding = machine.only(new RanksCheck());
    assertEquals(Severity.UNCHECKED, finding.severity());
    assertTrue(finding.meaning().contains("in parts (MIG)"), finding.meaning());
  }

  @Test
  void aRankForEachGpuIsNoFinding() {
    assertEquals(List.of(), machine.said(new RanksCheck()));
    assertEquals(List.of(), launched(1).said(new RanksCheck()));
  }

  @Test
  void launchersThatContradictEachOtherAreAnError() {
    machine.set("RANK", "5").set("WORLD_SIZE", "2");
    Finding finding = machine.only(new RanksCheck());
    assertEquals(Severity.ERROR, finding.severity());
    assertTrue(finding.what().contains("RANK"), finding.what());
  }
}
