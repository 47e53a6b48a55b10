package io.nccl4j.rendezvous;

import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import io.nccl4j.fixtures.fuzzing.RawConnection;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.internal.rendezvous.ExchangeFailedException;
import io.nccl4j.internal.rendezvous.RankBackend;
import io.nccl4j.internal.rendezvous.Token;
import io.nccl4j.internal.rendezvous.tcp.FramedConnection;
import io.nccl4j.internal.rendezvous.tcp.Handshake;
import io.nccl4j.internal.rendezvous.tcp.IdClient;
import io.nccl4j.internal.rendezvous.tcp.IdServer;
import io.nccl4j.internal.rendezvous.tcp.RejectReason;
import io.nccl4j.internal.util.Deadline;
import java.io.DataInputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.random.RandomGenerator;

/**
 * Fuzzes what a client receives from rank 0's port: a greeting, and an answer, which is sealed with
 * the secret for half of the inputs.
 */
final class IdClientFuzz implements FuzzTarget {
  private static final Duration ATTEMPT = Duration.ofMillis(100);

  private final ExecutorService impostor = Executors.newSingleThreadExecutor();
  private final ServerSocket listener;

  IdClientFuzz() throws IOException {
    listener = new ServerSocket(0, 10, InetAddress.getLoopbackAddress());
  }

  @Override
  public List<Sample> samples() throws Exception {
    Sample greeting = Sample.of(Handshake.greeting(), 8, 4, 32);
    byte[] reason = "a reason".getBytes(StandardCharsets.UTF_8);
    return List.of(
        greeting.followedBy(
            Sample.of(
                out -> {
                  out.writeByte(IdServer.GRANTED);
                  out.write(RendezvousFuzzTest.id().toBytes());
                })),
        greeting.followedBy(
            Sample.of(
                out -> {
                  out.writeByte(RejectReason.ROUND_FAILED.code());
                  out.write(reason);
                })),
        greeting.followedBy(
            Sample.of(new byte[] {IdServer.PLAIN, (byte) RejectReason.OVERSIZED.code()}, 1)),
        greeting);
  }

  /** Sealed answers: an empty one, and an id of 54 bytes. */
  @Override
  public List<String> regressions() {
    return List.of(
        "4e43434c344a5256000000023ced9b376cf64ac1e6cf4d9e7dd9c9d3eaf2600f4123747a88fd84250d4a5dc1",
        "4e43434c344a5256000000029c9deb73601904918d3cf771c2a01aae2c4de6bb1e59555aff9b6628edd438a9"
            + "00025043434c344a5256000000029c9deb73601904918d3cf771c2a01aae2ccde6bb1e59155aff9b6628"
            + "edd438a90f6120726561736f6e");
  }

  @Override
  public void read(byte[] input) throws Exception {
    Future<?> answered = impostor.submit(() -> answer(input));
    try (SocketChannel channel = SocketChannel.open(listener.getLocalSocketAddress());
        FramedConnection frames = new FramedConnection(channel, Deadline.after(ATTEMPT))) {
      IdClient client =
          new IdClient(
              "rank0",
              1,
              RankInfo.of(1, 2).jobRank(),
              RendezvousFuzzTest.SECRET.shared(),
              () -> {});
      client.converse(
          frames, new Handshake.Claim(1, 2, 1, RankBackend.NCCL, Token.ofText(""), Token.random()));
    } finally {
      answered.get();
    }
  }

  private Object answer(byte[] input) throws IOException {
    RandomGenerator random = Fuzzer.random(input);
    int first = Math.min(input.length, Handshake.GREETING_BYTES);
    byte[] greeting = Arrays.copyOf(input, first);
    byte[] rest = Arrays.copyOfRange(input, first, input.length);
    try (Socket client = listener.accept()) {
      if (random.nextInt(8) == 0) {
        return RawConnection.send(client, input, random);
      }
      RawConnection.send(client, framed(greeting), random);
      DataInputStream in = new DataInputStream(client.getInputStream());
      byte[] claim = new byte[in.readUnsignedShort()];
      in.readFully(claim);
      boolean sealed = random.nextBoolean();
      byte[] answer = sealed ? sealed(greeting, claim, rest) : rest;
      RawConnection.send(client, framed(answer), random);
      if (random.nextInt(64) == 0) {
        return in.read();
      }
    } catch (IOException e) {
      // The client has closed the connection; read() checks the outcome.
    }
    return null;
  }

  private static byte[] sealed(byte[] greeting, byte[] claim, byte[] answer) throws IOException {
    byte[] sealed =
        Handshake.ofServer(RendezvousFuzzTest.SECRET.shared(), greeting, claim)
            .seal(Arrays.copyOf(answer, Math.min(answer.length, 60_000)));
    return ByteBuffer.allocate(1 + sealed.length).put((byte) IdServer.SEALED).put(sealed).array();
  }

  private static byte[] framed(byte[] message) {
    short length = (short) message.length;
    return ByteBuffer.allocate(2 + message.length).putShort(length).put(message).array();
  }

  @Override
  public List<Class<? extends Exception>> documented() {
    return List.of(IOException.class, ExchangeFailedException.class);
  }

  @Override
  public long maxAllocated(int inputBytes) {
    return (1 << 20) + 16L * inputBytes;
  }

  @Override
  public void close() throws IOException {
    listener.close();
    impostor.shutdownNow();
  }
}
