package io.nccl4j.internal.rendezvous;

import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import io.nccl4j.fixtures.fuzzing.RawConnection;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.internal.util.Deadline;
import java.io.DataInputStream;
import java.io.DataOutput;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.random.RandomGenerator;

/**
 * Fuzzes what a rank receives from the port of torchrun's store. An input is the concatenation of
 * all answers; a request consumes as many bytes as a correct answer would have.
 */
final class TorchStoreFuzz implements FuzzTarget {
  private static final Duration TIMEOUT = Duration.ofMillis(100);
  private static final int CHECK = 5;

  private final ServerSocket listener;
  private volatile byte[] answers = {};

  TorchStoreFuzz() throws IOException {
    listener = new ServerSocket(0, 10, InetAddress.getLoopbackAddress());
    Thread.ofPlatform().daemon().name("fuzzed-store").start(this::serveAll);
  }

  @Override
  public List<Sample> samples() throws Exception {
    return List.of(answered(17), endless());
  }

  /** Answers to a greeting, a set, a get of a value, and one of an absent value. */
  private static Sample answered(int length) throws IOException {
    return Sample.of(
        out -> {
          out.writeInt(0);
          out.writeInt(0);
          out.writeByte(0);
          size(out, length);
          out.write(new byte[length]);
          out.writeByte(1);
        });
  }

  /** The longest value that a rank accepts, sent byte by byte. */
  private static Sample endless() throws IOException {
    return answered(Store.MAX_VALUE_BYTES);
  }

  private static void size(DataOutput out, long size) throws IOException {
    boolean big = ByteOrder.nativeOrder() == ByteOrder.BIG_ENDIAN;
    out.writeLong(big ? size : Long.reverseBytes(size));
  }

  @Override
  public void read(byte[] input) throws Exception {
    answers = input;
    String host = listener.getInetAddress().getHostAddress();
    int port = listener.getLocalPort();
    try (Store store = new TorchStore(host, port, "the store")) {
      store.open(Deadline.after(TIMEOUT));
      store.set("key", new byte[1]);
      store.get("key");
      store.get("another key");
    }
  }

  private void serveAll() {
    while (!listener.isClosed()) {
      try (Socket client = listener.accept()) {
        serve(client, answers);
      } catch (IOException e) {
        // The client has disconnected, or the target is closed; continue with the next input.
      }
    }
  }

  private static void serve(Socket client, byte[] input) throws IOException {
    client.setSoTimeout(1000);
    client.setTcpNoDelay(true);
    RandomGenerator random = Fuzzer.random(input);
    ByteBuffer left = ByteBuffer.wrap(input);
    DataInputStream in = new DataInputStream(client.getInputStream());
    boolean more = true;
    while (more) {
      more =
          switch (in.readUnsignedByte()) {
            case 0 -> in.skipBytes(Integer.BYTES) > 0;
            case 1 -> text(in).length + text(in).length >= 0;
            case 3 -> {
              text(in);
              yield value(client, left, random);
            }
            case CHECK -> {
              in.readLong();
              text(in);
              yield reply(client, take(left, 1), 1, random);
            }
            default -> reply(client, echo(in, take(left, Integer.BYTES)), Integer.BYTES, random);
          };
    }
    if (random.nextInt(32) == 0) {
      // Stay silent rather than disconnect.
      in.read();
    }
  }

  private static byte[] take(ByteBuffer left, int count) {
    byte[] bytes = new byte[Math.min(count, left.remaining())];
    left.get(bytes);
    return bytes;
  }

  /** Returns the number of a ping, XORed with the answer. */
  private static byte[] echo(DataInputStream in, byte[] change) throws IOException {
    byte[] number = in.readNBytes(Integer.BYTES);
    for (int i = 0; i < change.length; i++) {
      change[i] ^= number[i];
    }
    return change;
  }

  private static byte[] text(DataInputStream in) throws IOException {
    long size = in.readLong();
    boolean big = ByteOrder.nativeOrder() == ByteOrder.BIG_ENDIAN;
    return in.readNBytes((int) (big ? size : Long.reverseBytes(size)));
  }

  private static boolean value(Socket client, ByteBuffer left, RandomGenerator random)
      throws IOException {
    byte[] size = take(left, Long.BYTES);
    if (!reply(client, size, Long.BYTES, random)) {
      return false;
    }
    long length = ByteBuffer.wrap(size).order(ByteOrder.nativeOrder()).getLong();
    int count = Math.clamp(length, 0, left.remaining());
    byte[] value = take(left, count);
    if (length == Store.MAX_VALUE_BYTES) {
      // Slow enough to exceed the limit of an input, but no single read times out.
      for (byte each : value) {
        client.getOutputStream().write(each);
        LockSupport.parkNanos(500_000);
      }
      return true;
    }
    return reply(client, value, count, random);
  }

  private static boolean reply(Socket client, byte[] bytes, int expected, RandomGenerator random) {
    return RawConnection.send(client, bytes, random) && bytes.length == expected;
  }

  @Override
  public List<Class<? extends Exception>> documented() {
    return List.of(IOException.class);
  }

  @Override
  public Duration limit() {
    return TIMEOUT.plusSeconds(20);
  }

  @Override
  public long maxAllocated(int inputBytes) {
    return (1 << 20) + 8L * inputBytes;
  }

  @Override
  public void close() throws IOException {
    listener.close();
  }
}
