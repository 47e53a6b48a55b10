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
 * A connection to PyTorch's TCP store ({@code c10d::TCPStore}), which keeps bytes by name. All that
 * is done over it ends at one deadline, with a {@link SocketTimeoutException}; what no store would
 * answer is a {@link ProtocolException} that shows it.
 *
 * <p>A request is one byte that says which, and its arguments. Names and values have their length
 * before them; numbers have the byte order of the hosts, which the store takes to be the same
 * everywhere. The first request is a magic number, which is not answered. A ping, whose number
 * comes back, then tells a store from whatever else may listen; stores know it from PyTorch 2.5 on.
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

  private static final int MOST_VALUE_BYTES = 1 << 16;
  private static final Duration LONGEST_ATTEMPT = Duration.ofSeconds(10);

  private final String host;
  private final int port;
  private final Deadline deadline;
  private Deadline current;
  private volatile SocketChannel channel;
  private volatile boolean closed;

  /** Makes a connection that is not open yet. */
  TorchStore(String host, int port, Deadline deadline) {
    this.host = host;
    this.port = port;
    this.deadline = deadline;
  }

  /**
   * Connects, and tries again until the deadline where nobody listens yet, or a store that is asked
   * by too many at once resets connections.
   *
   * @throws ProtocolException if what listens there is no store
   */
  void connect() throws IOException, InterruptedException {
    String lastly = "";
    Backoff backoff = Backoff.betweenAttempts(deadline);
    for (int attempt = 0; ; attempt++) {
      try {
        current = deadline.orAfter(LONGEST_ATTEMPT);
        connect(attempt);
        current = deadline;
        return;
      } catch (ProtocolException e) {
        throw e;
      } catch (IOException e) {
        if (closed || Thread.currentThread().isInterrupted()) {
          throw e;
        }
        // What an attempt says that the deadline cut short tells less than the one before.
        lastly = deadline.passed() && !lastly.isEmpty() ? lastly : said(e);
        LOG.debug("{} will be connected to again: {}", this, lastly);
      }
      if (deadline.passed()) {
        throw new SocketTimeoutException(this + " does not answer; lastly: " + lastly);
      }
      backoff.pause();
    }
  }

  private static String said(IOException e) {
    return e.getMessage() == null ? e.toString() : e.getMessage();
  }

  private void connect(int attempt) throws IOException, InterruptedException {
    // Looked up each time, for a name may come to be while we wait.
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

  /** Returns when all has been done that was asked for before. */
  void ping() throws IOException {
    byte[] number = SessionKeys.randomBytes(Integer.BYTES);
    send(new Request(PING).bytes(number));
    byte[] answer = read(Integer.BYTES);
    if (!Arrays.equals(number, answer)) {
      throw protocolViolation("the ping " + HexFormat.of().formatHex(number), answer);
    }
  }

  /** Gives a name a value. The store says nothing to that; an answer to a later request will. */
  void set(String name, byte[] value) throws IOException {
    send(new Request(SET).text(name).sized(value));
  }

  /** Returns whether a name has a value. */
  boolean has(String name) throws IOException {
    send(new Request(CHECK).size(1).text(name));
    byte[] answer = read(1);
    return switch (answer[0]) {
      case READY -> true;
      case NOT_READY -> false;
      default -> throw protocolViolation("whether it has " + name, answer);
    };
  }

  /** Waits until a name has a value. */
  void await(String name) throws IOException {
    send(new Request(WAIT).size(1).text(name));
    byte[] answer = read(1);
    if (answer[0] != STOP_WAITING) {
      throw protocolViolation("a wait for " + name, answer);
    }
  }

  /** Returns the value of a name that has one. */
  byte[] get(String name) throws IOException {
    send(new Request(GET).text(name));
    byte[] size = read(Long.BYTES);
    long length = ByteBuffer.wrap(size).order(ByteOrder.nativeOrder()).getLong();
    if (length < 0 || length > MOST_VALUE_BYTES) {
      throw protocolViolation("the size of " + name, size);
    }
    return read((int) length);
  }

  /** Takes the value of a name away. */
  void delete(String name) throws IOException {
    send(new Request(DELETE_KEY).text(name));
    byte[] answer = read(Long.BYTES);
    long deleted = ByteBuffer.wrap(answer).order(ByteOrder.nativeOrder()).getLong();
    if (deleted < 0 || deleted > 1) {
      throw protocolViolation("how many of " + name + " it has deleted", answer);
    }
  }

  /** Requests are so short that a socket's buffer always takes them. */
  private void send(Request request) throws IOException {
    channel.socket().getOutputStream().write(request.bytes.toByteArray());
  }

  private byte[] read(int length) throws IOException {
    InputStream in = channel.socket().getInputStream();
    byte[] bytes = new byte[length];
    for (int have = 0; have < length; ) {
      int got = readSome(in, bytes, have);
      if (got < 0) {
        throw new EOFException("it closed the connection instead of an answer");
      }
      have += got;
    }
    return bytes;
  }

  private int readSome(InputStream in, byte[] bytes, int from) throws IOException {
    if (current.passed()) {
      // A store that sends a byte now and then would keep each read within its time.
      throw new SocketTimeoutException("it did not answer in time");
    }
    channel.socket().setSoTimeout(current.remainingMillis());
    try {
      return in.read(bytes, from, bytes.length - from);
    } catch (SocketTimeoutException e) {
      SocketTimeoutException late =
          new SocketTimeoutException("it accepts connections, but did not answer in time");
      late.initCause(e);
      throw late;
    }
  }

  private static ProtocolException protocolViolation(String asked, byte[] answer) {
    String text = new String(answer, StandardCharsets.ISO_8859_1).replaceAll("[^ -~]", ".");
    String hex = HexFormat.ofDelimiter(" ").formatHex(answer);
    return new ProtocolException(
        "what listens there is no store of PyTorch: asked for %s, it answered '%s' (%s)"
            .formatted(asked, text, hex));
  }

  /** Ends whatever is under way, in any thread. */
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

    private Request(int what) {
      bytes.write(what);
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
