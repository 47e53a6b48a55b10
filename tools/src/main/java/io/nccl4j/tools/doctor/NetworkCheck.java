package io.nccl4j.tools.doctor;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.Collectors;

/** The network: whether the variables that choose interfaces name any that are here. */
final class NetworkCheck implements Check {
  private static final String IFNAME = "NCCL_SOCKET_IFNAME";
  private static final String HCA = "NCCL_IB_HCA";
  private static final String INFINIBAND = "/sys/class/infiniband";
  private static final String FIRST_CONTACT =
      "ranks first meet over a socket: without an interface every initialisation fails";

  @Override
  public String name() {
    return "network";
  }

  @Override
  public List<Finding> findings(MachineState evidence) {
    Machine machine = evidence.machine();
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
              "no network interface is running with an address of " + family,
              FIRST_CONTACT,
              "bring one up; lo with 127.0.0.1 is enough on one host"));
    }
    // NCCL takes a single character for nothing.
    Optional<NcclVariable> set =
        NcclVariable.of(IFNAME, machine).filter(each -> each.value().length() > 1);
    return set.map(each -> chosen(each, usable, machine)).orElse(List.of());
  }

  private static List<Finding> chosen(NcclVariable set, List<NetworkPort> usable, Machine machine) {
    InterfaceFilter choice = InterfaceFilter.parse(set.value());
    if (usable.stream().noneMatch(port -> choice.takes(port.name(), -1))) {
      return List.of(
          Finding.error(
              set + " leaves no interface" + unusable(choice, machine),
              FIRST_CONTACT,
              "take one of: "
                  + names(usable)
                  + "; '=' before the list asks for whole names, '^' for"
                  + " all others"));
    }
    if (choice.except()) {
      return List.of();
    }
    return choice.entries().stream()
        .filter(entry -> usable.stream().noneMatch(port -> choice.matches(entry, port.name(), -1)))
        .map(
            entry ->
                Finding.warning(
                    set + ": '" + entry + "' names no interface that is running with an address",
                    "NCCL goes on with the others, perhaps on one link less than intended",
                    "take some of: " + names(usable)))
        .toList();
  }

  private static String unusable(InterfaceFilter choice, Machine machine) {
    String present =
        machine.ports().stream()
            .map(NetworkPort::name)
            .filter(name -> !choice.except() && choice.takes(name, -1))
            .collect(Collectors.joining(", "));
    return present.isEmpty()
        ? ""
        : "; " + present + " is there, but not running or without a fitting address";
  }

  private static String names(List<NetworkPort> ports) {
    return ports.stream().map(NetworkPort::name).distinct().collect(Collectors.joining(", "));
  }

  /** Returns the InfiniBand and RoCE devices of a machine. */
  static List<String> infinibandDevices(Machine machine) {
    return machine.names(INFINIBAND);
  }

  private static Optional<Finding> infiniband(NcclVariable set, Machine machine) {
    InterfaceFilter choice = InterfaceFilter.parse(set.value());
    List<String> devices = infinibandDevices(machine);
    if (devices.isEmpty()) {
      return choice.except()
          ? Optional.empty()
          : Optional.of(
              Finding.warning(
                  set + ", but this machine shows no InfiniBand or RoCE device",
                  "between hosts NCCL falls back to sockets, many times slower",
                  "in a container, pass /dev/infiniband in; else load the driver, or unset "
                      + HCA));
    }
    List<String> ports = activePorts(devices, machine);
    boolean any = ports.stream().anyMatch(port -> takes(choice, port));
    return any
        ? Optional.empty()
        : Optional.of(
            Finding.warning(
                set + " leaves no active port of an InfiniBand or RoCE device",
                "between hosts NCCL falls back to sockets, many times slower",
                ports.isEmpty()
                    ? "no port is active: look at ibstat, at cables and subnet manager"
                    : "take some of: " + String.join(", ", ports)));
  }

  private static boolean takes(InterfaceFilter choice, String port) {
    int colon = port.lastIndexOf(':');
    return choice.takes(port.substring(0, colon), Integer.parseInt(port.substring(colon + 1)));
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
