package io.nccl4j.ras;

import io.nccl4j.internal.util.Deadline;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.Reader;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;

/**
 * A connection to a RAS service whose operations have one deadline and whose answers have a largest
 * size. A command is so short that writing it does not block.
 */
final class RasConnection implements AutoCloseable {
  /** About a hundred thousand ranks of communicators. */
  private static final int MAX_BYTES = 64 << 20;

  private static final int MAX_LINE = 1000;

  private final Socket socket = new Socket();
  private final Reader reader;
  private Deadline deadline;
  private int bytesLeft = MAX_BYTES;

  /** Connects, and waits until the service has confirmed the protocol. */
  RasConnection(InetAddress address, int port, Deadline deadline) throws IOException {
    this.deadline = deadline;
    try {
      socket.connect(new InetSocketAddress(address, port), deadline.remainingMillis());
      reader =
          new BufferedReader(
              new InputStreamReader(new Bounded(socket.getInputStream()), StandardCharsets.UTF_8));
      String reply = ask("CLIENT PROTOCOL 2");
      if (!reply.startsWith("SERVER PROTOCOL ")) {
        throw new RasException(this + " is no RAS service: it answered '" + reply + "'");
      }
    } catch (IOException | RuntimeException | Error failure) {
      try {
        close();
      } catch (IOException e) {
        failure.addSuppressed(e);
      }
      throw failure;
    }
  }

  /** Replaces the deadline. */
  void setDeadline(Deadline deadline) {
    this.deadline = deadline;
  }

  /** Allows another answer of the largest size. */
  void resetLimit() {
    bytesLeft = MAX_BYTES;
  }

  /** Returns the reader of what the service sends. */
  Reader reader() {
    return reader;
  }

  /**
   * Sends a command that the service confirms.
   *
   * @param since the first release of NCCL that has the command, for messages
   */
  void command(String command, String since) throws IOException {
    String reply = ask(command);
    if (!reply.equals("OK")) {
      throw new RasException(
          "%s refused %s, which NCCL has since %s: '%s'".formatted(this, command, since, reply));
    }
  }

  /** Refuses a release without {@code MONITOR}: a status can end its process. */
  void requireMonitor() throws IOException {
    // There is no such group, so this has no effect on a release that has the command.
    String reply = ask("MONITOR none");
    if (reply.startsWith("ERROR: Unknown command ")) {
      throw new RasException(this + " is of a release before 2.29, which a request can end");
    }
  }

  void send(String command) throws IOException {
    socket.getOutputStream().write((command + "\n").getBytes(StandardCharsets.US_ASCII));
  }

  /** Sends a command, and returns the line that the service answers. */
  private String ask(String command) throws IOException {
    send(command);
    StringBuilder line = new StringBuilder();
    for (int read = reader.read(); read != '\n'; read = reader.read()) {
      if (read < 0) {
        throw new RasException(this + " closed the connection instead of answering " + command);
      }
      if (line.length() == MAX_LINE) {
        throw new RasException(
            this
                + " answered "
                + command
                + " with a line of more than "
                + MAX_LINE
                + " characters");
      }
      line.append((char) read);
    }
    return line.toString();
  }

  @Override
  public void close() throws IOException {
    socket.close();
  }

  @Override
  public String toString() {
    return String.valueOf(socket.getRemoteSocketAddress());
  }

  /** Applies the deadline and the largest size to each read. */
  private final class Bounded extends InputStream {
    private final InputStream in;

    Bounded(InputStream in) {
      this.in = in;
    }

    @Override
    public int read() {
      throw new UnsupportedOperationException("readers read several bytes");
    }

    @Override
    public int read(byte[] to, int offset, int length) throws IOException {
      if (bytesLeft == 0) {
        throw new RasException(
            RasConnection.this + " sent more than " + (MAX_BYTES >> 20) + " MiB");
      }
      try {
        if (deadline.passed()) {
          throw new SocketTimeoutException();
        }
        socket.setSoTimeout(deadline.remainingMillis());
        int read = in.read(to, offset, Math.min(length, bytesLeft));
        bytesLeft -= Math.max(0, read);
        return read;
      } catch (SocketTimeoutException e) {
        throw new SocketTimeoutException(RasConnection.this + " did not answer in time");
      }
    }
  }
}
