package io.nccl4j.internal.reference.bootstrap;

import java.io.IOException;
import java.net.Inet4Address;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/** Chooses the address of this host at which this process listens. */
public final class SocketAddresses {
  /** The name of an interface, or {@link #NONE}. */
  static final String PROPERTY = "io.nccl4j.reference.interface";

  static final String VARIABLE = "NCCL4J_SOCKET_INTERFACE";

  /** The setting with which this process accepts no ranks of other processes. */
  static final String NONE = "none";

  static final String NO_INTERFACE =
      "no network interface with an address is up. Bring one up (ip link set lo up suffices on one"
          + " host); on hosts with IPv6 addresses only, start Java without"
          + " -Djava.net.preferIPv4Stack=true";

  // Prefixes of networks within one host, which other hosts cannot reach.
  private static final List<String> INNER = List.of("docker", "br-", "virbr", "veth", "cni", "lxc");

  private SocketAddresses() {}

  /** Returns the setting of the interface, or null. */
  static String setting() {
    String property = System.getProperty(PROPERTY);
    return property != null ? property : System.getenv(VARIABLE);
  }

  /**
   * Returns the address to listen at.
   *
   * @throws IOException if there is none; the message names the setting
   */
  public static InetAddress choose(String setting) throws IOException {
    List<NetworkInterface> up = new ArrayList<>();
    for (NetworkInterface found : NetworkInterface.networkInterfaces().toList()) {
      if (found.isUp() && address(found) != null) {
        up.add(found);
      }
    }
    String names = String.join(", ", up.stream().map(NetworkInterface::getName).toList());
    if (setting == null || setting.isEmpty()) {
      return up.stream()
          .min(Comparator.comparingInt(SocketAddresses::remoteness))
          .map(SocketAddresses::address)
          .orElseThrow(() -> new IOException(NO_INTERFACE));
    }
    return up.stream()
        .filter(found -> found.getName().equals(setting))
        .findFirst()
        .map(SocketAddresses::address)
        .orElseThrow(
            () ->
                new IOException(
                    "%s is %s, which is no interface that is up; use one of %s"
                        .formatted(source(), setting, names)));
  }

  /** Returns the name of the property or variable that is set. */
  private static String source() {
    return System.getProperty(PROPERTY) != null ? PROPERTY : VARIABLE;
  }

  private static int remoteness(NetworkInterface found) {
    boolean inner = INNER.stream().anyMatch(found.getName()::startsWith);
    return (isLoopback(found) ? 1 << 22 : inner ? 1 << 21 : 0)
        + (address(found) instanceof Inet4Address ? 0 : 1 << 20)
        + Math.clamp(found.getIndex(), 0, (1 << 20) - 1);
  }

  private static boolean isLoopback(NetworkInterface found) {
    return found.inetAddresses().anyMatch(InetAddress::isLoopbackAddress);
  }

  /** Returns an address that is valid on other hosts without a scope; IPv4 if there is one. */
  private static InetAddress address(NetworkInterface found) {
    return found
        .inetAddresses()
        .filter(address -> !address.isLinkLocalAddress())
        .min(Comparator.comparingInt(address -> address instanceof Inet4Address ? 0 : 1))
        .orElse(null);
  }
}
