package io.nccl4j.internal.rendezvous;

import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import io.nccl4j.fixtures.fuzzing.RawConnection;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.internal.auth.SessionKeys;
import io.nccl4j.internal.util.Deadline;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.random.RandomGenerator;

/**
 * Fuzzes what a rank receives from rank 0's port: a greeting, a verdict, and an answer. {@link
 * TorchStoreFuzz} has the other answers.
 */
final class StoreClientFuzz implements FuzzTarget {
  private static final Duration ATTEMPT = Duration.ofMillis(100);

  private final ServerSocket listener;
  private volatile byte[] input = {};

  StoreClientFuzz() throws IOException {
    listener = new ServerSocket(0, 10, InetAddress.getLoopbackAddress());
    Thread.ofPlatform().daemon().name("impostor").start(this::answerAll);
  }

  @Override
  public List<Sample> samples() throws Exception {
    Sample greeting = Sample.of(Handshake.greeting(), 8, 4, 32);
    Sample value =
        Sample.of(
            out -> {
              out.writeByte(Handshake.ADMITTED);
              out.writeByte(TorchStore.READY);
              out.write(TorchStore.bytes(3));
              out.write(new byte[3]);
            });
    Sample refusal = Sample.of(new byte[] {Handshake.WRONG_SECRET}, 1);
    return List.of(greeting.followedBy(value), greeting.followedBy(refusal), greeting);
  }

  @Override
  public void read(byte[] bytes) throws Exception {
    input = bytes;
    try (Store store =
        new StoreClient(
            listener.getInetAddress().getHostAddress(),
            listener.getLocalPort(),
            new JobRank(1, 2, ""),
            RendezvousFuzzTest.SECRET,
            "rank 0")) {
      store.open(Deadline.after(ATTEMPT));
      store.get("rank-0");
    }
  }

  private void answerAll() {
    while (!listener.isClosed()) {
      try (Socket client = listener.accept()) {
        client.setSoTimeout(1000);
        answer(client, input);
      } catch (IOException e) {
        // The client has disconnected, or the target is closed; continue with the next input.
      }
    }
  }

  private static void answer(Socket client, byte[] input) throws IOException {
    RandomGenerator random = Fuzzer.random(input);
    int first = Math.min(input.length, Handshake.GREETING_BYTES);
    byte[] greeting = Arrays.copyOf(input, first);
    byte[] rest = Arrays.copyOfRange(input, first, input.length);
    if (random.nextInt(8) == 0 || rest.length == 0) {
      RawConnection.send(client, input, random);
      return;
    }
    RawConnection.send(client, greeting, random);
    client.getInputStream().readNBytes(Handshake.CLAIM_BYTES);
    client.getInputStream().readNBytes(SessionKeys.PROOF_BYTES);
    RawConnection.send(client, rest, random);
  }

  @Override
  public List<Class<? extends Exception>> documented() {
    return List.of(IOException.class);
  }

  @Override
  public long maxAllocated(int inputBytes) {
    return (1 << 20) + 16L * inputBytes;
  }

  @Override
  public void close() throws IOException {
    listener.close();
  }
}
