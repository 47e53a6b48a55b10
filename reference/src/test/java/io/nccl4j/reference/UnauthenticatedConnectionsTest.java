package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.NcclSystemException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.IdleConnections;
import io.nccl4j.internal.auth.SessionKeys;
import io.nccl4j.internal.reference.bootstrap.Handshake;
import io.nccl4j.internal.reference.bootstrap.Message;
import io.nccl4j.internal.reference.bootstrap.ProcessAddress;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.reference.bootstrap.ReferenceId;
import io.nccl4j.internal.reference.bootstrap.Secret;
import io.nccl4j.internal.reference.bootstrap.SocketAddresses;
import io.nccl4j.internal.util.PortRange;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Connections without the secret, or with invalid messages, are refused and affect no rank. */
class UnauthenticatedConnectionsTest {
  private static final String INTERFACE = "io.nccl4j.reference.interface";
  private static final String LIMIT = "io.nccl4j.pendingConnections";
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(30));

  /** The first message of an unauthenticated client. */
  record Greeting(String what, ByteBuffer bytes) {
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
        new Greeting("an unknown kind", header(Message.MAGIC, 99, 0)),
        new Greeting(
            "a kind that opens nothing", hello(Message.Kind.STATUS_REQUEST, Message.VERSION)),
        new Greeting("another version", hello(Message.Kind.JOIN, 99)),
        new Greeting(
            "to a bootstrap without the secret", hello(Message.Kind.JOIN, Message.VERSION)),
        new Greeting(
            "to a communicator without the secret", hello(Message.Kind.CONTROL, Message.VERSION)),
        new Greeting("to a link without the secret", hello(Message.Kind.LINK, Message.VERSION)),
        new Greeting(
            "to another process", claim(Message.Kind.JOIN, Message.VERSION, UUID.randomUUID())),
        new Greeting("a claim that is too large", header(Message.MAGIC, 1, 257)),
        new Greeting("too little", Message.of(Message.Kind.JOIN, out -> {})));
  }

  private static ByteBuffer header(int magic, int kind, int size) {
    return ByteBuffer.allocate(12).putInt(magic).putInt(kind).putInt(size).flip();
  }

  private static ByteBuffer hello(Message.Kind kind, int version) {
    return claim(kind, version, ProcessEndpoint.ofThisProcess().process());
  }

  private static ByteBuffer claim(Message.Kind kind, int version, UUID process) {
    return Message.of(
        kind,
        out -> {
          out.writeInt(version);
          ProcessAddress.writeUuid(out, Secret.random().name());
          ProcessAddress.writeUuid(out, process);
          out.write(SessionKeys.randomBytes(32));
          out.writeLong(1);
          out.write(SessionKeys.randomBytes(32));
        });
  }

  @ParameterizedTest
  @MethodSource("greetings")
  void invalidGreetingIsRefusedWhileRanksConnect(Greeting greeting) throws Exception {
    Backend backend = ReferenceBackend.openAsProcesses(2, 2, ReferenceOptions.defaults());
    UniqueId id = backend.newUniqueId();
    FutureTask<Integer> first = rank(backend, id, 0);
    int answered = answer(id, greeting.bytes);
    assertEquals(Handshake.GREETING_BYTES, answered, "nothing but the greeting is answered");
    FutureTask<Integer> second = rank(backend, id, 1);
    assertEquals(3, first.get(40, TimeUnit.SECONDS));
    assertEquals(3, second.get(40, TimeUnit.SECONDS));
  }

  /** Returns the number of bytes that the listening process sends before it closes. */
  private static int answer(UniqueId id, ByteBuffer bytes) throws IOException {
    try (Socket socket = connect(id)) {
      send(socket, bytes.duplicate());
      return bytesUntilEnd(socket, Duration.ofSeconds(20));
    }
  }

  private static FutureTask<Integer> rank(Backend backend, UniqueId id, int rank) {
    FutureTask<Integer> task =
        new FutureTask<>(
            () -> {
              try (Communicator comm = backend.newCommunicator(id, 2, rank, CONFIG);
                  Stream stream = comm.newStream();
                  Buffer value = comm.newBuffer(DataType.INT32, 1)) {
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
  void unauthenticatedHeaderAllocatesLittle() throws Exception {
    ProcessEndpoint endpoint = new ProcessEndpoint();
    UniqueId id = newId(endpoint);
    // The first refusal loads classes and the logger.
    connectAndAwaitEnd(id, StandardCharsets.US_ASCII.encode("GET / HTTP/1.1\r\n\r\n"));
    int connections = 16;
    List<Socket> sockets = new ArrayList<>();
    long before = allocatedByEventLoops();
    try {
      for (int i = 0; i < connections; i++) {
        Socket socket = connect(id);
        sockets.add(socket);
        send(socket, header(Message.MAGIC, 1, 16 << 20));
      }
      awaitEnd(sockets.getLast(), Duration.ofSeconds(2));
      long bytes = (allocatedByEventLoops() - before) / connections;
      assertTrue(bytes <= 4096, () -> bytes + " bytes per connection");
    } finally {
      for (Socket socket : sockets) {
        socket.close();
      }
    }
  }

  @Test
  void silentConnectionAllocatesLittle() throws Exception {
    ProcessEndpoint endpoint = new ProcessEndpoint();
    UniqueId id = newId(endpoint);
    connectAndAwaitEnd(id, StandardCharsets.US_ASCII.encode("GET / HTTP/1.1\r\n\r\n"));
    int connections = 16;
    List<Socket> sockets = new ArrayList<>();
    long before = allocatedByEventLoops();
    try {
      for (int i = 0; i < connections; i++) {
        sockets.add(connect(id));
      }
      for (Socket socket : sockets) {
        socket.setSoTimeout(20_000);
        byte[] greeting = socket.getInputStream().readNBytes(Handshake.GREETING_BYTES);
        assertEquals(Handshake.GREETING_BYTES, greeting.length);
      }
      long bytes = (allocatedByEventLoops() - before) / connections;
      assertTrue(bytes <= 4096, () -> bytes + " bytes per connection");
    } finally {
      for (Socket socket : sockets) {
        socket.close();
      }
    }
  }

  private static long allocatedByEventLoops() {
    ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().startsWith("nccl4j-event-loop"))
        .mapToLong(thread -> threads.getThreadAllocatedBytes(thread.threadId()))
        .sum();
  }

  @Test
  void silentConnectionsAboveTheLimitAreDropped() throws Exception {
    System.setProperty(LIMIT, "8");
    List<Socket> sockets = new ArrayList<>();
    try {
      UniqueId id = newId(new ProcessEndpoint());
      for (int i = 0; i < 12; i++) {
        sockets.add(connect(id));
      }
      for (int i = 0; i < 4; i++) {
        // Less than the time after which a silent connection is closed without a limit.
        assertTrue(
            awaitEnd(sockets.get(i), Duration.ofSeconds(8)), "connection " + i + " was not closed");
      }
    } finally {
      System.clearProperty(LIMIT);
      for (Socket socket : sockets) {
        socket.close();
      }
    }
  }

  @Test
  void ranksConnectDespiteTooManyConnections() throws Exception {
    System.setProperty(LIMIT, "8");
    List<Socket> sockets = new ArrayList<>();
    try {
      List<ProcessEndpoint> endpoints = List.of(new ProcessEndpoint(), new ProcessEndpoint());
      Backend backend = ReferenceBackend.open(2, ReferenceOptions.defaults(), endpoints);
      UniqueId id = backend.newUniqueId();
      for (int i = 0; i < 12; i++) {
        sockets.add(connect(id));
      }
      FutureTask<Integer> first = rank(backend, id, 0);
      FutureTask<Integer> second = rank(backend, id, 1);
      assertEquals(3, first.get(40, TimeUnit.SECONDS));
      assertEquals(3, second.get(40, TimeUnit.SECONDS));
    } finally {
      System.clearProperty(LIMIT);
      for (Socket socket : sockets) {
        socket.close();
      }
    }
  }

  @Test
  void ranksConnectBesideAThousandIdleConnections() throws Exception {
    List<ProcessEndpoint> endpoints = List.of(new ProcessEndpoint(), new ProcessEndpoint());
    Backend backend = ReferenceBackend.open(2, ReferenceOptions.defaults(), endpoints);
    UniqueId id = backend.newUniqueId();
    try (IdleConnections idle = new IdleConnections(ReferenceId.of(id).maker().address(), 1000)) {
      FutureTask<Integer> first = rank(backend, id, 0);
      FutureTask<Integer> second = rank(backend, id, 1);
      assertEquals(3, first.get(20, TimeUnit.SECONDS));
      assertEquals(3, second.get(20, TimeUnit.SECONDS));
      assertTrue(idle.open() > 900, () -> "only " + idle.open() + " are open");
    }
  }

  private static UniqueId newId(ProcessEndpoint endpoint) {
    return ReferenceBackend.open(1, ReferenceOptions.defaults(), List.of(endpoint)).newUniqueId();
  }

  private static Socket connect(UniqueId id) throws IOException {
    Socket socket = new Socket();
    socket.connect(ReferenceId.of(id).maker().address(), 10_000);
    return socket;
  }

  private static void send(Socket socket, ByteBuffer bytes) throws IOException {
    byte[] sent = new byte[bytes.remaining()];
    bytes.get(sent);
    socket.getOutputStream().write(sent);
  }

  private static void connectAndAwaitEnd(UniqueId id, ByteBuffer bytes) throws IOException {
    try (Socket socket = connect(id)) {
      send(socket, bytes);
      assertTrue(awaitEnd(socket, Duration.ofSeconds(20)), "the connection was not closed");
    }
  }

  private static boolean awaitEnd(Socket socket, Duration longest) throws IOException {
    return bytesUntilEnd(socket, longest) >= 0;
  }

  /** Reads until the other side closes; returns the number of bytes, or -1 if it does not close. */
  private static int bytesUntilEnd(Socket socket, Duration longest) throws IOException {
    socket.setSoTimeout((int) longest.toMillis());
    int count = 0;
    try {
      while (socket.getInputStream().read() >= 0) {
        count++;
      }
    } catch (SocketTimeoutException e) {
      return -1;
    } catch (SocketException e) {
      // Reset, since the sent bytes were not read.
    }
    return count;
  }

  @Test
  void missingRemoteRanksAreNamed() {
    Backend backend = ReferenceBackend.openAsProcesses(4, 2, ReferenceOptions.defaults());
    UniqueId id = backend.newUniqueId();
    CommunicatorConfig soon = CONFIG.withTimeout(Duration.ofSeconds(1));
    NcclTimeoutException thrown =
        assertThrows(NcclTimeoutException.class, () -> backend.newCommunicator(id, 4, 1, soon));
    assertTrue(thrown.getMessage().contains("ranks 0, 2, 3 of 4 did not join"), thrown::toString);
  }

  @Test
  void unknownInterfaceIsRefusedNamingTheSetting() {
    IOException refused =
        assertThrows(IOException.class, () -> SocketAddresses.choose("no-such-interface"));
    assertTrue(
        refused
            .getMessage()
            .startsWith("NCCL4J_SOCKET_INTERFACE is no-such-interface, which is no interface"),
        refused::toString);
  }

  @Test
  void unknownInterfaceReachesEveryRankAtOnce(@TempDir Path directory) throws Exception {
    System.setProperty(INTERFACE, "no-such-interface");
    // Not the endpoint of this process, which may be listening already.
    List<ProcessEndpoint> endpoints =
        List.of(new ProcessEndpoint(), new ProcessEndpoint(), new ProcessEndpoint());
    try (Backend backend = ReferenceBackend.open(3, ReferenceOptions.defaults(), endpoints)) {
      List<FutureTask<UniqueId>> ranks = new ArrayList<>();
      for (int rank = 0; rank < 3; rank++) {
        Rendezvous rendezvous = Rendezvous.files(directory, RankInfo.of(rank, 3));
        FutureTask<UniqueId> task = new FutureTask<>(() -> rendezvous.exchange(backend));
        Thread.ofPlatform().daemon().start(task);
        ranks.add(task);
      }
      for (FutureTask<UniqueId> rank : ranks) {
        // Two seconds, and some for a busy machine; the rendezvous' timeout is two minutes.
        ExecutionException thrown =
            assertThrows(ExecutionException.class, () -> rank.get(10, TimeUnit.SECONDS));
        String text = thrown.getCause().getMessage();
        assertTrue(text.contains("is no-such-interface, which is no interface that is up"), text);
      }
    } finally {
      System.clearProperty(INTERFACE);
    }
  }

  @Test
  void processListensInTheRangeOfPorts() throws Exception {
    int port;
    try (ServerSocket free = new ServerSocket(0)) {
      port = free.getLocalPort();
    }
    System.setProperty(PortRange.PROPERTY, port + "-" + port);
    try {
      UniqueId id = newId(new ProcessEndpoint());
      assertEquals(port, ReferenceId.of(id).maker().address().getPort());
      NcclSystemException none =
          assertThrows(NcclSystemException.class, () -> newId(new ProcessEndpoint()));
      String expected = "no port of io.nccl4j.ports (%d-%d) is free at ".formatted(port, port);
      assertTrue(none.getMessage().contains(expected), none::toString);
      System.setProperty(PortRange.PROPERTY, "many");
      IllegalArgumentException invalid =
          assertThrows(IllegalArgumentException.class, () -> newId(new ProcessEndpoint()));
      assertTrue(invalid.getMessage().startsWith("io.nccl4j.ports is 'many'; it must be"));
    } finally {
      System.clearProperty(PortRange.PROPERTY);
    }
  }

  @Test
  void interfaceIsChosenByName() throws IOException {
    assertTrue(SocketAddresses.choose("lo").isLoopbackAddress());
  }
}
