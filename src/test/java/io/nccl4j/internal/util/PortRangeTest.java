package io.nccl4j.internal.util;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.BindException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.channels.ServerSocketChannel;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class PortRangeTest {
  private static final InetAddress LOOPBACK = InetAddress.getLoopbackAddress();

  @ParameterizedTest
  @CsvSource({"29500-29600, 29500, 29600", "' 80 ', 80, 80", "1-65535, 1, 65535"})
  void portsAreParsed(String text, int first, int last) {
    PortRange ports = PortRange.of("P", text).orElseThrow();
    assertEquals(new PortRange("P", first, last), ports);
    assertEquals(last - first + 1, ports.size());
  }

  @Test
  void blankTextIsNoRange() {
    assertEquals(Optional.empty(), PortRange.of("P", " "));
  }

  @ParameterizedTest
  @ValueSource(strings = {"0", "65536", "2-1", "-1", "1-", "-", "a-b", "1-2-3", "1,2"})
  void otherTextIsRefused(String text) {
    String message =
        assertThrows(IllegalArgumentException.class, () -> PortRange.of("P", text)).getMessage();
    assertEquals(
        "P is '%s'; it must be FIRST-LAST, such as 29500-29600, with ports from 1 to 65535"
            .formatted(text),
        message);
  }

  @Test
  void highestFreePortIsTaken() throws Exception {
    try (ServerSocket taken = new ServerSocket(0, 1, LOOPBACK)) {
      int last = taken.getLocalPort();
      try (ServerSocketChannel server = new PortRange("P", last - 20, last).listen(LOOPBACK, 1)) {
        int port = server.socket().getLocalPort();
        assertTrue(port >= last - 20 && port < last, () -> port + ", of " + last);
      }
    }
  }

  @Test
  void rangeWithoutFreePortIsNamed() throws Exception {
    try (ServerSocket taken = new ServerSocket(0, 1, LOOPBACK)) {
      int port = taken.getLocalPort();
      PortRange ports = new PortRange("NCCL4J_PORTS", port, port);
      String message =
          assertThrows(BindException.class, () -> ports.listen(LOOPBACK, 1)).getMessage();
      String expected = "no port of NCCL4J_PORTS (%d-%d) is free at ".formatted(port, port);
      assertTrue(message.startsWith(expected), message);
    }
  }
}
