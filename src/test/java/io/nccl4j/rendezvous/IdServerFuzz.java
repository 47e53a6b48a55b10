package io.nccl4j.rendezvous;

import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import io.nccl4j.fixtures.fuzzing.RawConnection;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.rendezvous.Token;
import io.nccl4j.internal.rendezvous.tcp.Handshake;
import io.nccl4j.internal.rendezvous.tcp.IdServer;
import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.random.RandomGenerator;

/**
 * Fuzzes rank 0's port. Half of the clients know the secret and send dishonest claims; the others
 * send modified, recorded or foreign messages.
 */
final class IdServerFuzz implements FuzzTarget {
  private static final Duration SILENCE = Duration.ofMillis(5);
  private static final Duration SERVED = Duration.ofSeconds(15);
  private static final Secret OTHER = Secret.of("the secret of another run");
  // More ranks than ever arrive, so that the round never ends.
  private static final int SIZE = 1000;
  private static final int MAX_ANSWER_BYTES = 2048;

  private final TcpRendezvous server =
      TcpRendezvous.at("127.0.0.1", 0, RendezvousFuzzTest.SECRET, RankInfo.of(0, SIZE));
  private final InetSocketAddress address =
      new InetSocketAddress(InetAddress.getLoopbackAddress(), server.port());
  private final FutureTask<Object> round =
      new FutureTask<>(() -> server.exchange(RendezvousFuzzTest::id));

  IdServerFuzz() {
    Thread.ofPlatform().daemon().name("fuzzed-rank-0").start(round);
  }

  @Override
  public List<Sample> samples() throws Exception {
    Handshake recorded =
        Handshake.ofClient(
            RendezvousFuzzTest.SECRET.shared(), Handshake.greeting(), claim(new byte[0]));
    byte[] message = recorded.claimMessage();
    return List.of(
        Sample.of(framed(message), 2, 8, 4, 4, 4, 4, 4, 8, 8, 8, 8, 32),
        Sample.of(
            out -> {
              // Rank 0 itself: a valid rank would be kept waiting.
              out.writeInt(0);
              out.writeInt(SIZE);
              out.writeInt(1);
              out.writeInt(RankBackend.NCCL.code());
              out.writeLong(Token.ofText("").high());
              out.writeLong(Token.ofText("").low());
              out.writeLong(1);
              out.writeLong(2);
            }),
        Sample.text("GET / HTTP/1.1\r\nHost: rank0\r\n\r\n"));
  }

  /** Parses the first bytes of an input as a claim; short inputs are padded with 0. */
  private static Handshake.Claim claim(byte[] input) {
    ByteBuffer bytes = ByteBuffer.wrap(Arrays.copyOf(input, 64));
    return new Handshake.Claim(
        bytes.getInt(),
        bytes.getInt(),
        bytes.getInt(),
        RankBackend.ofCode(bytes.getInt()),
        Token.read(bytes),
        Token.read(bytes));
  }

  private static byte[] framed(byte[] message) {
    short length = (short) message.length;
    return ByteBuffer.allocate(2 + message.length).putShort(length).put(message).array();
  }

  @Override
  public void read(byte[] input) throws Exception {
    RandomGenerator random = Fuzzer.random(input);
    try (RawConnection client = new RawConnection(address)) {
      byte[] greeting = readFrame(client);
      boolean authentic = random.nextBoolean();
      if (authentic) {
        Secret secret = random.nextInt(4) == 0 ? OTHER : RendezvousFuzzTest.SECRET;
        Handshake handshake = Handshake.ofClient(secret.shared(), greeting, claim(input));
        client.send(framed(handshake.claimMessage()), random);
        // In place of the receipt.
        client.send(framed(Arrays.copyOf(input, Math.min(input.length, 40))), random);
      } else {
        client.send(input, random);
      }
      boolean silent = random.nextInt(16) == 0;
      if (!silent) {
        client.end();
      }
      byte[] answer = client.answer(silent ? SILENCE : SERVED);
      if (!silent && !client.cutOff()) {
        throw new AssertionError("rank 0 did not close the connection");
      }
      if (answer.length > MAX_ANSWER_BYTES) {
        throw new AssertionError("rank 0 answered " + answer.length + " bytes");
      }
      if (!authentic && answer.length > 2 && answer[2] == IdServer.SEALED) {
        throw new AssertionError("rank 0 answered a client without the secret as a rank");
      }
    }
  }

  private static byte[] readFrame(RawConnection client) throws IOException {
    DataInputStream in = new DataInputStream(client.input());
    byte[] message = new byte[in.readUnsignedShort()];
    in.readFully(message);
    return message;
  }

  @Override
  public void check() throws Exception {
    try (RawConnection client = new RawConnection(address)) {
      Handshake.Claim honest =
          new Handshake.Claim(
              SIZE - 2, SIZE, 1, RankBackend.UNKNOWN, Token.ofText(""), Token.random());
      Handshake handshake =
          Handshake.ofClient(RendezvousFuzzTest.SECRET.shared(), readFrame(client), honest);
      client.send(framed(handshake.claimMessage()), Fuzzer.random(new byte[0]));
      byte[] answer = readFrame(client);
      handshake.open(Arrays.copyOfRange(answer, 1, answer.length));
    }
    if (round.isDone()) {
      round.get(0, TimeUnit.SECONDS);
      throw new AssertionError("rank 0 has sent the id");
    }
  }

  /** For any input, the client gets an answer or the connection is closed. */
  @Override
  public List<Class<? extends Exception>> documented() {
    return List.of();
  }

  @Override
  public long maxAllocated(int inputBytes) {
    return (1 << 20) + 8L * inputBytes;
  }

  @Override
  public boolean usesOtherThreads() {
    return true;
  }

  @Override
  public void close() {
    server.close();
  }
}
