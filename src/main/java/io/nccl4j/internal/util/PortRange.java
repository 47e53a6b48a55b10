package io.nccl4j.internal.util;

import java.io.IOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.util.Optional;

/**
 * The ports that a listener may use where the user does not name one, so that a firewall can let
 * them through.
 *
 * @param name the setting, for messages
 * @param first the lowest port
 * @param last the highest port
 */
public record PortRange(String name, int first, int last) {
  /** The system property; takes precedence over {@link #VARIABLE}. */
  public static final String PROPERTY = "io.nccl4j.ports";

  /** The environment variable. */
  public static final String VARIABLE = "NCCL4J_PORTS";

  private static final int HIGHEST_PORT = 65535;

  /**
   * Returns the configured range, if there is one.
   *
   * @throws IllegalArgumentException if it is not a range of ports
   */
  public static Optional<PortRange> configured() {
    String property = System.getProperty(PROPERTY);
    return property != null
        ? of(PROPERTY, property)
        : Optional.ofNullable(System.getenv(VARIABLE)).flatMap(text -> of(VARIABLE, text));
  }

  /**
   * Parses a range like {@code 29500-29600}, or a single port; a blank text is none.
   *
   * @throws IllegalArgumentException if it is not a range of ports
   */
  public static Optional<PortRange> of(String name, String text) {
    if (text.isBlank()) {
      return Optional.empty();
    }
    String[] ends = text.strip().split("-", 2);
    try {
      int first = Integer.parseInt(ends[0]);
      int last = ends.length == 1 ? first : Integer.parseInt(ends[1]);
      if (first >= 1 && first <= last && last <= HIGHEST_PORT) {
        return Optional.of(new PortRange(name, first, last));
      }
    } catch (NumberFormatException e) {
      throw invalid(name, text, e);
    }
    throw invalid(name, text, null);
  }

  private static IllegalArgumentException invalid(String name, String text, Exception cause) {
    return new IllegalArgumentException(
        "%s is '%s'; it must be FIRST-LAST, such as 29500-29600, with ports from 1 to %d"
            .formatted(name, text, HIGHEST_PORT),
        cause);
  }

  /** Returns the number of ports. */
  public int size() {
    return last - first + 1;
  }

  /**
   * Returns a channel that listens on a free port, the highest first: users tend to give the lowest
   * one to a rendezvous.
   *
   * @throws BindException if no port is free
   */
  public ServerSocketChannel listen(InetAddress address, int backlog) throws IOException {
    for (int port = last; ; port--) {
      // A new one each time: if two processes bind to a port at once, the one that cannot listen
      // stays bound.
      ServerSocketChannel server = ServerSocketChannel.open();
      try {
        return server.bind(new InetSocketAddress(address, port), backlog);
      } catch (IOException e) {
        server.close();
        if (!(e instanceof BindException)) {
          throw e;
        }
        if (port == first) {
          BindException failure =
              new BindException(
                  "no port of %s (%d-%d) is free at %s: %s"
                      .formatted(name, first, last, address.getHostAddress(), e.getMessage()));
          failure.initCause(e);
          throw failure;
        }
      }
    }
  }
}
