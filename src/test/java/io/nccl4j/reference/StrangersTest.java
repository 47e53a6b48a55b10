package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.io.IOException;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** That whoever connects without the secret, or with nonsense, is sent away and harms nobody. */
class StrangersTest {
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(30));

  /** What a stranger says first. */
  private record Greeting(String what, ByteBuffer bytes) {
    @Override
    public String toString() {
      return what;
    }
  }

  static List<Greeting> greetings() {
    return List.of(
        new Greeting(
            "another protocol", StandardCharsets.US_ASCII.encode("GET / HTTP/1.1\r\n\r\n")),
        new Greeting("a message that is too large", header(Message.MAGIC, 1, Integer.MAX_VALUE)),
        new Greeting("a message of negative size", header(Message.MAGIC, 1, -1)),
        new Greeting("a kind that is none", header(Message.MAGIC, 99, 0)),
        new Greeting("a message that begins nothing", hello(Message.Kind.ASK, Message.VERSION)),
        new Greeting("another version", hello(Message.Kind.JOIN, 99)),
        new Greeting("to a gathering without the secret", hello(Message.Kind.JOIN, 1)),
        new Greeting("to a world without the secret", hello(Message.Kind.CONTROL, 1)),
        new Greeting("to a link without the secret", hello(Message.Kind.LINK, 1)),
        new Greeting("too little", Message.of(Message.Kind.JOIN, out -> {})));
  }

  private static ByteBuffer header(int magic, int kind, int size) {
    return ByteBuffer.allocate(12).putInt(magic).putInt(kind).putInt(size).flip();
  }

  private static ByteBuffer hello(Message.Kind kind, int version) {
    return Message.of(
        kind,
        out -> {
          out.writeInt(version);
          Secret.random().write(out);
          out.writeLong(1);
        });
  }

  @ParameterizedTest
  @MethodSource("greetings")
  void aStrangerIsSentAwayWhileRanksMeet(Greeting greeting) throws Exception {
    ReferenceBackend backend = SeparateSites.open(2, ReferenceOptions.defaults(), 2);
    UniqueId id = backend.newUniqueId();
    FutureTask<Integer> first = rank(backend, id, 0);
    assertEquals(-1, answer(id, greeting.bytes), "nothing but the end is answered");
    FutureTask<Integer> second = rank(backend, id, 1);
    assertEquals(3, first.get(40, TimeUnit.SECONDS));
    assertEquals(3, second.get(40, TimeUnit.SECONDS));
  }

  /** Returns what the process that made an id answers to the first bytes of a connection. */
  private static int answer(UniqueId id, ByteBuffer bytes) throws IOException {
    try (Socket socket = new Socket()) {
      socket.connect(ReferenceId.of(id).maker().address(), 10_000);
      socket.setSoTimeout(20_000);
      byte[] first = new byte[bytes.remaining()];
      bytes.duplicate().get(first);
      socket.getOutputStream().write(first);
      return socket.getInputStream().read();
    }
  }

  private static FutureTask<Integer> rank(ReferenceBackend backend, UniqueId id, int rank) {
    FutureTask<Integer> task =
        new FutureTask<>(
            () -> {
              try (Communicator comm = backend.communicator(id, 2, rank, CONFIG);
                  Stream stream = comm.newStream();
                  Buffer value = comm.allocate(DataType.INT32, 1)) {
                DataType.INT32.setLong(value.segment(), 0, rank + 1);
                comm.allReduce(value, value, ReduceOp.SUM, stream);
                stream.synchronize();
                return (int) DataType.INT32.getLong(value.segment(), 0);
              }
            });
    Thread.ofPlatform().daemon().name("rank-" + rank).start(task);
    return task;
  }

  @Test
  void ranksThatDoNotComeFromElsewhereAreNamed() {
    ReferenceBackend backend = SeparateSites.open(4, ReferenceOptions.defaults(), 2);
    UniqueId id = backend.newUniqueId();
    CommunicatorConfig soon = CONFIG.withTimeout(Duration.ofSeconds(1));
    NcclTimeoutException thrown =
        assertThrows(NcclTimeoutException.class, () -> backend.communicator(id, 4, 1, soon));
    assertTrue(thrown.getMessage().contains("ranks 0, 2, 3 of 4 did not come"), thrown::toString);
  }

  @Test
  void anInterfaceThatIsNotThereIsRefusedByTheNameOfTheSetting() {
    IOException refused =
        assertThrows(IOException.class, () -> SocketAddresses.choose("no-such-interface"));
    assertTrue(
        refused
            .getMessage()
            .startsWith("NCCL4J_SOCKET_INTERFACE is no-such-interface, which is no interface"),
        refused::toString);
  }

  @Test
  void anInterfaceIsChosenByItsName() throws IOException {
    assertTrue(SocketAddresses.choose("lo").isLoopbackAddress());
  }
}
