package io.nccl4j.internal.rendezvous.torch;

import io.nccl4j.internal.auth.SessionKeys;
import io.nccl4j.internal.rendezvous.HostLookup;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Loggers;
import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ProtocolException;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.logging.log4j.Logger;

/**
 * A connection to PyTorch's TCP store ({@code c10d::TCPStore}), a key-value store. One deadline
 * covers all requests; after it they throw {@link SocketTimeoutException}. An answer that no store
 * would send causes a {@link ProtocolException} that contains it.
 *
 * <p>A request is a type byte followed by its arguments. Keys and values are length-prefixed;
 * numbers are in native byte order, which the store assumes to be the same on all hosts. The first
 * request is a magic number, which is not answered. The ping that follows, whose number is echoed,
 * distinguishes a store from other services; stores support it since PyTorch 2.5.
 */
final class TorchStore implements Closeable {
  private static final Logger LOG = Loggers.of(TorchStore.class);

  private static final int VALIDATE = 0;
  private static final int SET = 1;
  private static final int GET = 3;
  private static final int CHECK = 5;
  private static final int WAIT = 6;
  private static final int DELETE_KEY = 8;
  private static final int PING = 13;

  private static final int MAGIC = 0x3C85F7CE;
  private static final int READY = 0;
  private static final int NOT_READY = 1;
  private static final int STOP_WAITING = 0;

  private static final int MAX_VALUE_BYTES = 1 << 16;
  private static final Duration ATTEMPT_TIMEOUT = Duration.ofSeconds(10);

  private final String host;
  private final int port;
  private final Deadline deadline;
  private Deadline current;
  private volatile SocketChannel channel;
  private volatile boolean closed;

  /** Creates a connection that is not open yet. */
  TorchStore(String host, int port, Deadline deadline) {
    this.host = host;
    this.port = port;
    this.deadline = deadline;
  }

  /**
   * Connects, retrying until the deadline if nothing listens yet or an overloaded store resets the
   * connection.
   *
   * @throws ProtocolException if the server is not a store
   */
  void connect() throws IOException, InterruptedException {
    String lastProblem = "";
    Backoff backoff = Backoff.betweenAttempts(deadline);
    for (int attempt = 0; ; attempt++) {
      try {
        current = deadline.orAfter(ATTEMPT_TIMEOUT);
        connect(attempt);
        current = deadline;
        return;
      } catch (ProtocolException e) {
        throw e;
      } catch (IOException e) {
        if (closed || Thread.currentThread().isInterrupted()) {
          throw e;
        }
        // The problem of an attempt cut short by the deadline is less useful than the previous one.
        lastProblem = deadline.passed() && !lastProblem.isEmpty() ? lastProblem : describe(e);
        LOG.debug("connecting to {} again: {}", this, lastProblem);
      }
      if (deadline.passed()) {
        throw new SocketTimeoutException(this + " does not answer; last problem: " + lastProblem);
      }
      backoff.pause();
    }
  }

  private static String describe(IOException e) {
    return e.getMessage() == null ? e.toString() : e.getMessage();
  }

  private void connect(int attempt) throws IOException, InterruptedException {
    // Resolved each time, since the name may become resolvable while we wait.
    InetAddress[] addresses = HostLookup.addresses(host, current);
    close(channel);
    channel = SocketChannel.open();
    if (closed) {
      channel.close();
      throw new ClosedChannelException();
    }
    Socket socket = channel.socket();
    InetAddress address = addresses[attempt % addresses.length];
    socket.connect(new InetSocketAddress(address, port), current.remainingMillis());
    socket.setTcpNoDelay(true);
    greet();
  }

  private void greet() throws IOException {
    send(new Request(VALIDATE).number(MAGIC));
    ping();
  }

  /** Returns when the store has processed all earlier requests. */
  void ping() throws IOException {
    byte[] number = SessionKeys.randomBytes(Integer.BYTES);
    send(new Request(PING).bytes(number));
    byte[] answer = read(Integer.BYTES);
    if (!Arrays.equals(number, answer)) {
      throw protocolViolation("the ping " + HexFormat.of().formatHex(number), answer);
    }
  }

  /** Sets a value. The store does not answer; the answer to a later request confirms it. */
  void set(String name, byte[] value) throws IOException {
    send(new Request(SET).text(name).sized(value));
  }

  /** Returns whether a key has a value. */
  boolean has(String name) throws IOException {
    send(new Request(CHECK).size(1).text(name));
    byte[] answer = read(1);
    return switch (answer[0]) {
      case READY -> true;
      case NOT_READY -> false;
      default -> throw protocolViolation("whether it has " + name, answer);
    };
  }

  /** Waits until a key has a value. */
  void await(String name) throws IOException {
    send(new Request(WAIT).size(1).text(name));
    byte[] answer = read(1);
    if (answer[0] != STOP_WAITING) {
      throw protocolViolation("a wait for " + name, answer);
    }
  }

  /** Returns the value of a key that has one. */
  byte[] get(String name) throws IOException {
    send(new Request(GET).text(name));
    byte[] size = read(Long.BYTES);
    long length = ByteBuffer.wrap(size).order(ByteOrder.nativeOrder()).getLong();
    if (length < 0 || length > MAX_VALUE_BYTES) {
      throw protocolViolation("the size of " + name, size);
    }
    return read((int) length);
  }

  /** Deletes a key. */
  void delete(String name) throws IOException {
    send(new Request(DELETE_KEY).text(name));
    byte[] answer = read(Long.BYTES);
    long deleted = ByteBuffer.wrap(answer).order(ByteOrder.nativeOrder()).getLong();
    if (deleted < 0 || deleted > 1) {
      throw protocolViolation("how many of " + name + " it has deleted", answer);
    }
  }

  /** Sends a request; requests are short enough to always fit into the socket's buffer. */
  private void send(Request request) throws IOException {
    channel.socket().getOutputStream().write(request.bytes.toByteArray());
  }

  private byte[] read(int length) throws IOException {
    InputStream in = channel.socket().getInputStream();
    byte[] bytes = new byte[length];
    for (int filled = 0; filled < length; ) {
      int count = readSome(in, bytes, filled);
      if (count < 0) {
        throw new EOFException("it closed the connection without an answer");
      }
      filled += count;
    }
    return bytes;
  }

  private int readSome(InputStream in, byte[] bytes, int from) throws IOException {
    if (current.passed()) {
      // A store that sends a byte now and then would keep each single read within its timeout.
      throw new SocketTimeoutException("it did not answer in time");
    }
    channel.socket().setSoTimeout(current.remainingMillis());
    try {
      return in.read(bytes, from, bytes.length - from);
    } catch (SocketTimeoutException e) {
      SocketTimeoutException timeout =
          new SocketTimeoutException("it accepts connections, but did not answer in time");
      timeout.initCause(e);
      throw timeout;
    }
  }

  private static ProtocolException protocolViolation(String asked, byte[] answer) {
    String text = new String(answer, StandardCharsets.ISO_8859_1).replaceAll("[^ -~]", ".");
    String hex = HexFormat.ofDelimiter(" ").formatHex(answer);
    return new ProtocolException(
        "the server is not a PyTorch store: asked for %s, it answered '%s' (%s)"
            .formatted(asked, text, hex));
  }

  /** Ends a request in progress in any thread. */
  @Override
  public void close() throws IOException {
    closed = true;
    close(channel);
  }

  private static void close(SocketChannel channel) throws IOException {
    if (channel != null) {
      channel.close();
    }
  }

  @Override
  public String toString() {
    return "the store at " + host + ":" + port;
  }

  /** The bytes of one request. */
  private static final class Request {
    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();

    private Request(int type) {
      bytes.write(type);
    }

    private Request number(int value) {
      return bytes(
          ByteBuffer.allocate(Integer.BYTES).order(ByteOrder.nativeOrder()).putInt(value).array());
    }

    private Request size(long value) {
      return bytes(
          ByteBuffer.allocate(Long.BYTES).order(ByteOrder.nativeOrder()).putLong(value).array());
    }

    private Request text(String text) {
      return sized(text.getBytes(StandardCharsets.UTF_8));
    }

    private Request sized(byte[] value) {
      return size(value.length).bytes(value);
    }

    private Request bytes(byte[] value) {
      bytes.writeBytes(value);
      return this;
    }
  }
}
