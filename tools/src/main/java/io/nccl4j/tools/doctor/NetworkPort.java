package io.nccl4j.tools.doctor;

import java.net.Inet4Address;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.net.SocketException;
import java.util.ArrayList;
import java.util.List;

/**
 * One network interface, as NCCL sees it.
 *
 * @param name its name, such as {@code eth0}
 * @param running whether it is up
 * @param addresses its addresses
 */
record NetworkPort(String name, boolean running, List<InetAddress> addresses) {
  /** Returns this machine's interfaces, including aliases. */
  static List<NetworkPort> ofThisMachine() throws SocketException {
    List<NetworkPort> ports = new ArrayList<>();
    for (NetworkInterface each : NetworkInterface.networkInterfaces().toList()) {
      ports.add(new NetworkPort(each.getName(), each.isUp(), each.inetAddresses().toList()));
    }
    return ports;
  }

  /**
   * Returns whether NCCL would use it: it is up and has an address of the family other than the
   * IPv6 loopback address.
   *
   * @param family {@code AF_INET} or {@code AF_INET6}; any other value means both
   */
  boolean usable(String family) {
    return running
        && addresses.stream()
            .anyMatch(
                address ->
                    switch (address) {
                      case Inet4Address _ -> !family.equals("AF_INET6");
                      case Inet6Address six ->
                          !family.equals("AF_INET") && !six.isLoopbackAddress();
                      default -> false;
                    });
  }
}
