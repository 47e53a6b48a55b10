package io.nccl4j.internal.rendezvous;

import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import io.nccl4j.fixtures.fuzzing.RawConnection;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.internal.auth.SharedSecret;
import io.nccl4j.internal.util.Deadline;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.random.RandomGenerator;

/**
 * Fuzzes rank 0's port. Half of the clients know the secret and send invalid requests; the others
 * send modified, recorded or foreign messages.
 */
final class StoreServerFuzz implements FuzzTarget {
  private static final Duration SILENCE = Duration.ofMillis(5);
  private static final Duration SERVED = Duration.ofSeconds(15);
  private static final SharedSecret OTHER = RendezvousFuzzTest.secret("the secret of another run");
  private static final int MAX_ANSWER_BYTES = 1 << 16;

  private final InetSocketAddress address;
  private final StoreServer server;

  StoreServerFuzz() throws IOException, ExchangeFailedException {
    try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      address = new InetSocketAddress(free.getInetAddress(), free.getLocalPort());
    }
    server = new StoreServer(address, new JobRank(0, 1000, ""), RendezvousFuzzTest.SECRET);
  }

  @Override
  public List<Sample> samples() throws Exception {
    byte[] key = "rank-1".getBytes(StandardCharsets.US_ASCII);
    return List.of(
        Sample.of(claim(Handshake.greeting(), RendezvousFuzzTest.SECRET), 8, 4, 8, 8, 4, 32),
        Sample.of(
            out -> {
              out.writeByte(TorchStore.SET);
              out.write(TorchStore.bytes(key.length));
              out.write(key);
              out.write(TorchStore.bytes(3));
              out.write(new byte[] {1, 2, 3});
              out.writeByte(TorchStore.PING);
              out.writeInt(77);
            }),
        Sample.of(
            out -> {
              out.writeByte(TorchStore.CHECK);
              out.write(TorchStore.bytes(1));
              out.write(TorchStore.bytes(key.length));
              out.write(key);
              out.writeByte(TorchStore.GET);
              out.write(TorchStore.bytes(key.length));
              out.write(key);
            }),
        Sample.text("GET / HTTP/1.1\r\nHost: rank0\r\n\r\n"));
  }

  private static byte[] claim(byte[] greeting, SharedSecret secret) {
    return Handshake.claim(greeting, secret, Token.ofText(""), 1);
  }

  @Override
  public void read(byte[] input) throws Exception {
    RandomGenerator random = Fuzzer.random(input);
    try (RawConnection client = new RawConnection(address)) {
      byte[] greeting = client.input().readNBytes(Handshake.GREETING_BYTES);
      boolean authentic = random.nextBoolean();
      boolean known = random.nextInt(4) > 0;
      if (authentic) {
        SharedSecret secret = known ? RendezvousFuzzTest.SECRET : OTHER;
        client.send(claim(greeting, secret), random);
        client.send(input, random);
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
      boolean admitted = answer.length > 0 && answer[0] == Handshake.ADMITTED;
      if (admitted && !(authentic && known)) {
        throw new AssertionError("rank 0 admitted a client without the secret");
      }
    }
  }

  @Override
  public void check() throws Exception {
    JobRank self = new JobRank(1, 1000, "");
    Deadline deadline = Deadline.after(SERVED);
    String host = address.getAddress().getHostAddress();
    try (Store store =
        new StoreClient(host, address.getPort(), self, RendezvousFuzzTest.SECRET, "rank 0")) {
      store.open(deadline);
      store.set("check", new byte[] {7});
      if (store.get("check")[0] != 7) {
        throw new AssertionError("rank 0 has another value");
      }
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
  public void close() throws IOException {
    server.close();
  }
}
