package io.nccl4j.tools.doctor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Interfaces and InfiniBand devices, chosen in NCCL's own syntax. */
class NetworkCheckTest {
  @TempDir Path root;

  private Fixture machine;

  @BeforeEach
  void aMachineWithTwoInterfaces() {
    machine = new Fixture(root);
  }

  private List<String> said() {
    return machine.said(new NetworkCheck());
  }

  private void device(String name, String port, String state) {
    machine.file("/sys/class/infiniband/" + name + "/ports/" + port + "/state", state + "\n");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {"eth", "eth0", "=eth0", "lo,eth0", "^docker,lo", "^=eth1", "e", "eth0:5000"})
  void aChoiceThatLeavesAnInterfaceIsNoFinding(String value) {
    machine.set("NCCL_SOCKET_IFNAME", value);
    assertEquals(List.of(), said());
  }

  @ParameterizedTest
  @ValueSource(strings = {"ib", "=eth", "^eth,lo", "^=eth0,lo", "ens3,ens4"})
  void aChoiceThatLeavesNoneIsAnErrorThatListsWhatThereIs(String value) {
    machine.set("NCCL_SOCKET_IFNAME", value);
    Finding finding = machine.only(new NetworkCheck());
    assertEquals(Severity.ERROR, finding.severity());
    assertEquals("NCCL_SOCKET_IFNAME=" + value + " leaves no interface", finding.what());
    assertTrue(finding.remedy().startsWith("take one of: lo, eth0;"), finding.remedy());
  }

  @Test
  void anInterfaceThatIsDownIsNamed() {
    machine.ports.add(new NetworkPort("ib0", false, List.of()));
    machine.set("NCCL_SOCKET_IFNAME", "ib");
    assertEquals(
        List.of(
            "error: NCCL_SOCKET_IFNAME=ib leaves no interface; ib0 is there, but not running or"
                + " without a fitting address"),
        said());
  }

  @Test
  void oneNameOfSeveralThatNamesNothingIsAWarning() {
    machine.set("NCCL_SOCKET_IFNAME", "eth0,eth1");
    assertEquals(
        List.of(
            "warning: NCCL_SOCKET_IFNAME=eth0,eth1: 'eth1' names no interface that is running with"
                + " an address"),
        said());
  }

  @Test
  void aVariableOfAConfigurationFileCountsUnlessTheEnvironmentHasIt() {
    machine.set("HOME", "/home/me");
    machine.file("/home/me/.nccl.conf", "# mine\nNCCL_SOCKET_IFNAME=ib\n");
    assertEquals(
        List.of("error: NCCL_SOCKET_IFNAME=ib (in /home/me/.nccl.conf) leaves no interface"),
        said());
    machine.set("NCCL_SOCKET_IFNAME", "eth");
    assertEquals(List.of(), said());
  }

  @Test
  void theFamilyMustFit() {
    machine.set("NCCL_SOCKET_FAMILY", "AF_INET6");
    assertEquals(
        List.of("error: no network interface is running with an address of AF_INET6"), said());
    machine.port("eth1", "fe80::1");
    assertEquals(List.of(), said());
  }

  @Test
  void theIpv6LoopbackAddressIsNoneForNccl() {
    machine.ports.clear();
    machine.port("lo", "::1");
    assertEquals(
        List.of("error: no network interface is running with an address of either family"), said());
  }

  @Test
  void infinibandThatIsChosenButNotThereIsAWarning() {
    machine.set("NCCL_IB_HCA", "mlx5");
    assertEquals(
        List.of("warning: NCCL_IB_HCA=mlx5, but this machine shows no InfiniBand or RoCE device"),
        said());
    machine.set("NCCL_IB_HCA", "^mlx5_3");
    assertEquals(List.of(), said());
  }

  @ParameterizedTest
  @ValueSource(strings = {"mlx5", "=mlx5_0", "mlx5_0:1", "^mlx5_1", "^=mlx5"})
  void infinibandThatIsChosenAndActiveIsNoFinding(String value) {
    device("mlx5_0", "1", "4: ACTIVE");
    device("mlx5_1", "1", "1: DOWN");
    machine.set("NCCL_IB_HCA", value);
    assertEquals(List.of(), said());
  }

  @ParameterizedTest
  @ValueSource(strings = {"mlx4", "=mlx5", "mlx5_1", "mlx5_0:2", "^mlx5"})
  void infinibandThatIsChosenAndNotActiveIsAWarning(String value) {
    device("mlx5_0", "1", "4: ACTIVE");
    device("mlx5_1", "1", "1: DOWN");
    machine.set("NCCL_IB_HCA", value);
    Finding finding = machine.only(new NetworkCheck());
    assertEquals(Severity.WARNING, finding.severity());
    assertEquals("take some of: mlx5_0:1", finding.remedy());
  }
}
