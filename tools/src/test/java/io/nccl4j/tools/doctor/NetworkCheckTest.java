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

/** Tests of the selection of interfaces and InfiniBand devices in NCCL's syntax. */
class NetworkCheckTest {
  @TempDir Path root;

  private Fixture machine;

  @BeforeEach
  void createMachineWithTwoInterfaces() {
    machine = new Fixture(root);
  }

  private List<String> titles() {
    return machine.titles(NetworkCheck::findings);
  }

  private void device(String name, String port, String state) {
    machine.file("/sys/class/infiniband/" + name + "/ports/" + port + "/state", state + "\n");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {"eth", "eth0", "=eth0", "lo,eth0", "^docker,lo", "^=eth1", "e", "eth0:5000"})
  void filterWithMatchIsFine(String value) {
    machine.set("NCCL_SOCKET_IFNAME", value);
    assertEquals(List.of(), titles());
  }

  @ParameterizedTest
  @ValueSource(strings = {"ib", "=eth", "^eth,lo", "^=eth0,lo", "ens3,ens4"})
  void filterWithoutMatchListsInterfaces(String value) {
    machine.set("NCCL_SOCKET_IFNAME", value);
    Finding finding = machine.onlyFinding(NetworkCheck::findings);
    assertEquals(Severity.ERROR, finding.severity());
    assertEquals("NCCL_SOCKET_IFNAME=" + value + " selects no usable interface", finding.title());
    assertTrue(finding.remedy().startsWith("use one of: lo, eth0;"), finding.remedy());
  }

  @Test
  void interfaceThatIsDownIsNamed() {
    machine.ports.add(new NetworkPort("ib0", false, List.of()));
    machine.set("NCCL_SOCKET_IFNAME", "ib");
    assertEquals(
        List.of(
            "error: NCCL_SOCKET_IFNAME=ib selects no usable interface; ib0 is down or has no"
                + " suitable address"),
        titles());
  }

  @Test
  void oneNameOfSeveralWithoutMatchIsAWarning() {
    machine.set("NCCL_SOCKET_IFNAME", "eth0,eth1");
    assertEquals(
        List.of(
            "warning: NCCL_SOCKET_IFNAME=eth0,eth1: 'eth1' matches no interface that is up with an"
                + " address"),
        titles());
  }

  @Test
  void environmentOverridesConfigurationFile() {
    machine.set("HOME", "/home/me");
    machine.file("/home/me/.nccl.conf", "# mine\nNCCL_SOCKET_IFNAME=ib\n");
    assertEquals(
        List.of(
            "error: NCCL_SOCKET_IFNAME=ib (in /home/me/.nccl.conf) selects no usable interface"),
        titles());
    machine.set("NCCL_SOCKET_IFNAME", "eth");
    assertEquals(List.of(), titles());
  }

  @Test
  void addressFamilyMustMatch() {
    machine.set("NCCL_SOCKET_FAMILY", "AF_INET6");
    assertEquals(
        List.of("error: no network interface is up with an address of AF_INET6"), titles());
    machine.port("eth1", "fe80::1");
    assertEquals(List.of(), titles());
  }

  @Test
  void ipv6LoopbackAddressDoesNotCount() {
    machine.ports.clear();
    machine.port("lo", "::1");
    assertEquals(
        List.of("error: no network interface is up with an address of either family"), titles());
  }

  @Test
  void missingInfinibandIsAWarning() {
    machine.set("NCCL_IB_HCA", "mlx5");
    assertEquals(
        List.of("warning: NCCL_IB_HCA=mlx5, but no InfiniBand or RoCE device is visible"),
        titles());
    machine.set("NCCL_IB_HCA", "^mlx5_3");
    assertEquals(List.of(), titles());
  }

  @ParameterizedTest
  @ValueSource(strings = {"mlx5", "=mlx5_0", "mlx5_0:1", "^mlx5_1", "^=mlx5"})
  void activeInfinibandIsFine(String value) {
    device("mlx5_0", "1", "4: ACTIVE");
    device("mlx5_1", "1", "1: DOWN");
    machine.set("NCCL_IB_HCA", value);
    assertEquals(List.of(), titles());
  }

  @ParameterizedTest
  @ValueSource(strings = {"mlx4", "=mlx5", "mlx5_1", "mlx5_0:2", "^mlx5"})
  void inactiveInfinibandIsAWarning(String value) {
    device("mlx5_0", "1", "4: ACTIVE");
    device("mlx5_1", "1", "1: DOWN");
    machine.set("NCCL_IB_HCA", value);
    Finding finding = machine.onlyFinding(NetworkCheck::findings);
    assertEquals(Severity.WARNING, finding.severity());
    assertEquals("use some of: mlx5_0:1", finding.remedy());
  }
}
