package io.nccl4j.tools.doctor;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.Collectors;

/** Checks that the variables that select interfaces match interfaces of this machine. */
final class NetworkCheck {
  private static final String IFNAME = "NCCL_SOCKET_IFNAME";
  private static final String HCA = "NCCL_IB_HCA";
  private static final String INFINIBAND = "/sys/class/infiniband";
  private static final String NEEDS_INTERFACE =
      "ranks connect over sockets first; without an interface, creating a communicator fails";

  private NetworkCheck() {}

  static List<Finding> findings(MachineState state) {
    Machine machine = state.machine();
    List<Finding> findings = new ArrayList<>(sockets(machine));
    NcclVariable.of(HCA, machine).flatMap(set -> infiniband(set, machine)).ifPresent(findings::add);
    return findings;
  }

  private static List<Finding> sockets(Machine machine) {
    String family =
        NcclVariable.of("NCCL_SOCKET_FAMILY", machine)
            .map(NcclVariable::value)
            .orElse("either family");
    List<NetworkPort> usable =
        machine.ports().stream().filter(port -> port.usable(family)).toList();
    if (usable.isEmpty()) {
      return List.of(
          Finding.error(
              "no network interface is up with an address of " + family,
              NEEDS_INTERFACE,
              "bring one up; on a single host, lo with 127.0.0.1 is enough"));
    }
    // NCCL ignores a value of one character.
    Optional<NcclVariable> set =
        NcclVariable.of(IFNAME, machine).filter(each -> each.value().length() > 1);
    return set.map(each -> interfaces(each, usable, machine)).orElse(List.of());
  }

  private static List<Finding> interfaces(
      NcclVariable set, List<NetworkPort> usable, Machine machine) {
    InterfaceFilter filter = InterfaceFilter.parse(set.value());
    if (usable.stream().noneMatch(port -> filter.selects(port.name(), -1))) {
      return List.of(
          Finding.error(
              set + " selects no usable interface" + unusable(filter, machine),
              NEEDS_INTERFACE,
              "use one of: "
                  + names(usable)
                  + "; '=' before the list matches whole names, '^' excludes the names"));
    }
    if (filter.exclude()) {
      return List.of();
    }
    return filter.entries().stream()
        .filter(entry -> usable.stream().noneMatch(port -> filter.matches(entry, port.name(), -1)))
        .map(
            entry ->
                Finding.warning(
                    set + ": '" + entry + "' matches no interface that is up with an address",
                    "NCCL uses the others, perhaps fewer links than intended",
                    "use some of: " + names(usable)))
        .toList();
  }

  private static String unusable(InterfaceFilter filter, Machine machine) {
    String present =
        machine.ports().stream()
            .map(NetworkPort::name)
            .filter(name -> !filter.exclude() && filter.selects(name, -1))
            .collect(Collectors.joining(", "));
    return present.isEmpty() ? "" : "; " + present + " is down or has no suitable address";
  }

  private static String names(List<NetworkPort> ports) {
    return ports.stream().map(NetworkPort::name).distinct().collect(Collectors.joining(", "));
  }

  /** Returns the InfiniBand and RoCE devices of a machine. */
  static List<String> infinibandDevices(Machine machine) {
    return machine.names(INFINIBAND);
  }

  private static Optional<Finding> infiniband(NcclVariable set, Machine machine) {
    InterfaceFilter filter = InterfaceFilter.parse(set.value());
    List<String> devices = infinibandDevices(machine);
    if (devices.isEmpty()) {
      return filter.exclude()
          ? Optional.empty()
          : Optional.of(
              Finding.warning(
                  set + ", but no InfiniBand or RoCE device is visible",
                  "between hosts NCCL falls back to sockets, which are many times slower",
                  "in a container, pass in /dev/infiniband; otherwise load the driver, or unset "
                      + HCA));
    }
    List<String> ports = activePorts(devices, machine);
    boolean any = ports.stream().anyMatch(port -> selects(filter, port));
    return any
        ? Optional.empty()
        : Optional.of(
            Finding.warning(
                set + " selects no active InfiniBand or RoCE port",
                "between hosts NCCL falls back to sockets, which are many times slower",
                ports.isEmpty()
                    ? "no port is active: check ibstat, the cables and the subnet manager"
                    : "use some of: " + String.join(", ", ports)));
  }

  private static boolean selects(InterfaceFilter filter, String port) {
    int colon = port.lastIndexOf(':');
    return filter.selects(port.substring(0, colon), Integer.parseInt(port.substring(colon + 1)));
  }

  private static List<String> activePorts(List<String> devices, Machine machine) {
    List<String> active = new ArrayList<>();
    for (String device : devices) {
      String folder = INFINIBAND + "/" + device + "/ports";
      for (String port : machine.names(folder)) {
        if (machine.text(folder + "/" + port + "/state").orElse("").contains("ACTIVE")) {
          active.add(device + ":" + port);
        }
      }
    }
    return active;
  }
}
