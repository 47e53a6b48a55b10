package io.nccl4j.internal.rendezvous;

import io.nccl4j.internal.auth.SessionKeys;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.HostLookup;
import io.nccl4j.internal.util.Loggers;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
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
 * A connection to PyTorch's TCP store ({@code c10d::TCPStore}), a key-value store. An answer that
 * no store would send causes a {@link ProtocolException} that contains it.
 *
 * <p>A request is a type byte followed by its arguments. Keys and values are length-prefixed;
 * numbers are in native byte order, which the store assumes to be the same on all hosts. The first
 * request is a magic number, which is not answered. The ping that follows, whose number is echoed,
 * distinguishes a store from other services; stores support it since PyTorch 2.5.
 */
public class TorchStore implements Store {
  static final int SET = 1;
  static final int GET = 3;
  static final int CHECK = 5;
  static final int PING = 13;
  static final int READY = 0;
  static final int NOT_READY = 1;

  private static final Logger LOG = Loggers.of(TorchStore.class);

  private static final int VALIDATE = 0;
  private static final int MAGIC = 0x3C85F7CE;
  private static final byte[] NOTHING = {};
  private static final Duration ATTEMPT_TIMEOUT = Duration.ofSeconds(10);

  private final String host;
  private final int port;
  private final String place;
  private Deadline deadline;
  private volatile SocketChannel channel;
  private volatile boolean closed;

  /**
   * Creates a connection that is not open yet.
   *
   * @param place describes the store in messages
   */
  public TorchStore(String host, int port, String place) {
    this.host = host;
    this.port = port;
    this.place = place;
  }

  /** Connects; retries if nothing listens yet or an overloaded server resets the connection. */
  @Override
  public final void open(Deadline limit) throws IOException, InterruptedException {
    String lastProblem = "";
    Backoff backoff = Backoff.betweenAttempts(limit);
    for (int attempt = 0; ; attempt++) {
      try {
        deadline = limit.orAfter(ATTEMPT_TIMEOUT);
        connect(attempt);
        // Beyond the limit, a rank still gets and gives the reasons of a failure.
        deadline = Deadline.after(limit.remaining().plus(StoreExchange.LINGER.multipliedBy(2)));
        return;
      } catch (ProtocolException e) {
        throw e;
      } catch (IOException e) {
        if (closed || Thread.currentThread().isInterrupted()) {
          throw e;
        }
        // The problem of an attempt cut short by the deadline is less useful than the previous one.
        lastProblem = limit.passed() && !lastProblem.isEmpty() ? lastProblem : describe(e);
        LOG.debug("connecting to {} again: {}", place, lastProblem);
      }
      if (limit.passed()) {
        throw new SocketTimeoutException(place + " does not answer; last problem: " + lastProblem);
      }
      backoff.pause();
    }
  }

  private static String describe(IOException e) {
    return e.getMessage() == null ? e.toString() : e.getMessage();
  }

  private void connect(int attempt) throws IOException, InterruptedException {
    // Resolved each time, since the name may become resolvable while we wait.
    InetAddress[] addresses = HostLookup.addresses(host, deadline);
    close(channel);
    channel = SocketChannel.open();
    if (closed) {
      channel.close();
      throw new ClosedChannelException();
    }
    Socket socket = channel.socket();
    InetAddress address = addresses[attempt % addresses.length];
    socket.connect(new InetSocketAddress(address, port), deadline.remainingMillis());
    socket.setTcpNoDelay(true);
    greet();
  }

  /**
   * Begins a new connection.
   *
   * @throws ProtocolException if retrying is useless
   */
  void greet() throws IOException {
    write(new Request(VALIDATE).number(MAGIC).bytes());
    ping();
  }

  /** Returns when the store has processed all earlier requests. */
  private void ping() throws IOException {
    byte[] number = SessionKeys.randomBytes(Integer.BYTES);
    write(new Request(PING).append(number).bytes());
    byte[] answer = read(Integer.BYTES);
    if (!Arrays.equals(number, answer)) {
      throw protocolViolation("the ping " + HexFormat.of().formatHex(number), answer);
    }
  }

  @Override
  public final void set(String key, byte[] value) throws IOException {
    write(new Request(SET).sized(key).sized(value).bytes());
    ping();
  }

  @Override
  public final byte[] get(String key) throws IOException {
    write(new Request(CHECK).size(1).sized(key).bytes());
    byte[] answer = read(1);
    return switch (answer[0]) {
      case READY -> value(key);
      case NOT_READY -> NOTHING;
      default -> throw protocolViolation("whether it has " + key, answer);
    };
  }

  private byte[] value(String key) throws IOException {
    write(new Request(GET).sized(key).bytes());
    byte[] size = read(Long.BYTES);
    long length = number(size);
    if (length < 0 || length > MAX_VALUE_BYTES) {
      throw protocolViolation("the size of " + key, size);
    }
    return read((int) length);
  }

  /** Empties the value: some stores do not tolerate that another client is about to get it. */
  @Override
  public final void delete(String key) throws IOException {
    set(key, NOTHING);
  }

  /** Sends a request; requests are short enough to always fit into the socket's buffer. */
  final void write(byte[] bytes) throws IOException {
    channel.socket().getOutputStream().write(bytes);
  }

  final byte[] read(int length) throws IOException {
    return read(channel.socket(), length, deadline);
  }

  /**
   * Reads so many bytes. One deadline covers them all, so that the other side cannot extend it by
   * sending a byte now and then.
   */
  static byte[] read(Socket socket, int length, Deadline deadline) throws IOException {
    byte[] bytes = new byte[length];
    for (int filled = 0; filled < length; ) {
      int count = readSome(socket, bytes, filled, deadline);
      if (count < 0) {
        throw new EOFException("it closed the connection without an answer");
      }
      filled += count;
    }
    return bytes;
  }

  private static int readSome(Socket socket, byte[] bytes, int from, Deadline deadline)
      throws IOException {
    String late = "it accepts connections, but did not answer in time";
    if (deadline.passed()) {
      throw new SocketTimeoutException(late);
    }
    socket.setSoTimeout(deadline.remainingMillis());
    try {
      return socket.getInputStream().read(bytes, from, bytes.length - from);
    } catch (SocketTimeoutException e) {
      SocketTimeoutException timeout = new SocketTimeoutException(late);
      timeout.initCause(e);
      throw timeout;
    }
  }

  static long number(byte[] bytes) {
    return ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder()).getLong();
  }

  static byte[] bytes(long number) {
    return ByteBuffer.allocate(Long.BYTES).order(ByteOrder.nativeOrder()).putLong(number).array();
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
  public final void close() throws IOException {
    closed = true;
    close(channel);
  }

  private static void close(SocketChannel channel) throws IOException {
    if (channel != null) {
      channel.close();
    }
  }

  /** Builds the bytes of one request. */
  private static final class Request {
    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();

    private Request(int type) {
      bytes.write(type);
    }

    private Request number(int value) {
      return append(
          ByteBuffer.allocate(Integer.BYTES).order(ByteOrder.nativeOrder()).putInt(value).array());
    }

    private Request size(long value) {
      return append(TorchStore.bytes(value));
    }

    private Request sized(String text) {
      return sized(text.getBytes(StandardCharsets.UTF_8));
    }

    private Request sized(byte[] value) {
      return size(value.length).append(value);
    }

    private Request append(byte[] value) {
      bytes.writeBytes(value);
      return this;
    }

    private byte[] bytes() {
      return bytes.toByteArray();
    }
  }
}
