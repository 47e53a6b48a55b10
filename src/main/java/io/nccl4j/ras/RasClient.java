package io.nccl4j.ras;

import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.HostLookup;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.SocketTimeoutException;
import java.time.Duration;
import java.util.Objects;
import java.util.function.Consumer;
import org.jspecify.annotations.NullMarked;

/**
 * A client of the RAS service of one address. Immutable; each request has its own connection, so
 * several threads may use it.
 *
 * <p>All processes of a user on a host share one address, unless {@code NCCL_RAS_ADDR} differs
 * between jobs: any of them may answer, also one of another job. Processes of one job give the same
 * answer. A request that a process does not confirm within a second is sent again, since the
 * process may be stopped.
 *
 * <p><b>Releases.</b> NCCL 2.24 and later have the service, 2.28.7 and later {@link #status}, 2.29
 * and later {@link #monitor}. Asking can end a process of the job: up to 2.27.2 while a
 * communicator is being initialized, from 2.27.3 to 2.28.9 while ranks are missing, and {@link
 * #text} also in later releases while a communicator is being initialized. 2.27.7 crashed without
 * being asked. So ask with {@link #status}, and ask 2.29.2 or later.
 */
@NullMarked
public final class RasClient {
  /** Where the service listens unless {@code NCCL_RAS_ADDR} names another address. */
  public static final String DEFAULT_ADDRESS = "localhost:28028";

  private static final Duration HANDSHAKE = Duration.ofSeconds(1);
  private static final int MAX_PORT = 65_535;

  private final String host;
  private final int port;
  private final boolean safe;

  private RasClient(String host, int port, boolean safe) {
    this.host = host;
    this.port = port;
    this.safe = safe;
  }

  /**
   * {@return a client of the service at an address} Does not connect.
   *
   * @param address {@code HOST:PORT}, as in {@code NCCL_RAS_ADDR}; an IPv6 address is in brackets
   * @throws IllegalArgumentException if the address has another form
   */
  public static RasClient of(String address) {
    int colon = address.lastIndexOf(':');
    String host = address.substring(0, Math.max(0, colon));
    if (host.startsWith("[") && host.endsWith("]")) {
      host = host.substring(1, host.length() - 1);
    } else if (host.contains(":")) {
      host = "";
    }
    String port = address.substring(colon + 1);
    if (host.isEmpty() || !port.matches("[0-9]{1,5}")) {
      throw new IllegalArgumentException(
          "address is '" + address + "', must be HOST:PORT; an IPv6 address is in brackets");
    }
    int number = Arguments.inRange(Integer.parseInt(port), "port", 1, MAX_PORT);
    return new RasClient(host, number, false);
  }

  /**
   * {@return a client of the same address that never asks a process which {@link #status} can end}
   * For programs that ask without knowing who listens: the request to a release before 2.29 is
   * refused with a {@link RasException}.
   */
  public RasClient safe() {
    return new RasClient(host, port, true);
  }

  /**
   * {@return what the service knows about the job} The process that answers asks all others and
   * waits up to 10 seconds for those that do not answer, so a shorter timeout may be too short.
   *
   * @param timeout for connecting and the whole answer
   * @throws RasException if the peer is no RAS service, is older than NCCL 2.28.7 (or {@link
   *     #safe}), or sends an invalid answer or one of more than 64 MiB
   * @throws SocketTimeoutException if the timeout expires
   * @throws IOException if the connection fails
   */
  public RasStatus status(Duration timeout) throws IOException {
    Arguments.positive(timeout, "timeout");
    try (RasConnection connection = connect(Deadline.after(timeout))) {
      connection.command("SET FORMAT json", "2.28.7");
      connection.command(wait(timeout), "2.24");
      if (safe) {
        connection.requireMonitor();
      }
      connection.send("STATUS");
      JsonReader json = new JsonReader(connection.reader());
      RasStatus status = RasStatus.read(json);
      json.end();
      return status;
    }
  }

  /**
   * {@return the status as the text that NVIDIA's {@code ncclras} prints} Its first line has the
   * release of NCCL; the rest is for people and differs between releases. See the class about
   * releases that this can crash.
   *
   * @param verbose whether to list all ranks, not only the few that differ from the others
   * @param timeout for connecting and the whole answer
   * @throws RasException if the peer is no RAS service, or sends more than 64 MiB
   * @throws SocketTimeoutException if the timeout expires
   * @throws IOException if the connection fails
   */
  public String text(boolean verbose, Duration timeout) throws IOException {
    Arguments.positive(timeout, "timeout");
    try (RasConnection connection = connect(Deadline.after(timeout))) {
      connection.command(wait(timeout), "2.24");
      connection.send(verbose ? "VERBOSE STATUS" : "STATUS");
      StringBuilder text = new StringBuilder();
      char[] part = new char[8192];
      for (int read; (read = connection.reader().read(part)) >= 0; ) {
        text.append(part, 0, read);
      }
      if (!text.toString().startsWith("NCCL version ")) {
        throw new RasException(this + " sent no status");
      }
      return text.toString();
    }
  }

  /**
   * Passes the events of the job to a consumer, in this thread, until a duration has passed.
   *
   * @param groups {@code lifecycle} for processes that come and die, {@code trace} for connections,
   *     or {@code all}
   * @param duration how long to listen
   * @param events receives each event; what it throws ends the call
   * @throws RasException if the peer is no RAS service, is older than NCCL 2.29, or sends an
   *     invalid event
   * @throws SocketTimeoutException if the service does not confirm the request within the duration
   * @throws IOException if the connection fails or the process ends
   */
  public void monitor(String groups, Duration duration, Consumer<RasEvent> events)
      throws IOException {
    Objects.requireNonNull(events, "events");
    if (!groups.matches("lifecycle|trace|all")) {
      throw new IllegalArgumentException(
          "groups is '" + groups + "', must be lifecycle, trace or all");
    }
    Arguments.positive(duration, "duration");
    Deadline deadline = Deadline.after(duration);
    try (RasConnection connection = connect(deadline)) {
      connection.command("SET FORMAT json", "2.28.7");
      connection.command("MONITOR " + groups, "2.29");
      JsonReader json = new JsonReader(connection.reader());
      while (true) {
        connection.resetLimit();
        RasEvent event;
        try {
          event = RasEvent.read(json);
        } catch (SocketTimeoutException over) {
          return;
        }
        events.accept(event);
      }
    }
  }

  /** How long the service waits for processes that do not answer; it may wait 5 s longer. */
  private static String wait(Duration timeout) {
    return "TIMEOUT " + Math.clamp(timeout.toSeconds() / 2, 1, 5);
  }

  private RasConnection connect(Deadline deadline) throws IOException {
    while (true) {
      boolean late = false;
      IOException refused = null;
      for (InetAddress address : addresses(deadline)) {
        try {
          RasConnection connection = new RasConnection(address, port, deadline.orAfter(HANDSHAKE));
          connection.setDeadline(deadline);
          return connection;
        } catch (SocketTimeoutException e) {
          late = true;
        } catch (ConnectException e) {
          refused = new ConnectException("no RAS service at " + this + ": " + e.getMessage());
        } catch (IOException e) {
          refused = e;
        }
      }
      if (!late) {
        throw refused;
      }
      if (deadline.passed()) {
        throw new SocketTimeoutException(this + " did not answer in time");
      }
    }
  }

  private InetAddress[] addresses(Deadline deadline) throws IOException {
    try {
      return HostLookup.addresses(host, deadline);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted while resolving " + host);
    }
  }

  /** {@return the address} */
  @Override
  public String toString() {
    return (host.contains(":") ? "[" + host + "]" : host) + ":" + port;
  }
}
