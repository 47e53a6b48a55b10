package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.internal.reference.ReferenceCommunicator;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.reference.rank.CommunicatorState;
import io.nccl4j.internal.reference.transport.LinkKey;
import io.nccl4j.internal.reference.transport.MemoryLink;
import io.nccl4j.internal.reference.transport.ReceiveLink;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.reference.transport.SameHostReceiveLink;
import io.nccl4j.internal.reference.transport.SameHostSendLink;
import io.nccl4j.internal.reference.transport.SendLink;
import io.nccl4j.internal.reference.transport.SharedMemoryFiles;
import io.nccl4j.internal.reference.transport.SharedMemoryLink;
import io.nccl4j.internal.reference.transport.TcpReceiveLink;
import io.nccl4j.internal.reference.transport.TcpSendLink;
import io.nccl4j.spi.Contract;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The links of a communicator whose ranks are in several processes and on several hosts. */
class MixedTransportsTest {
  /** Ranks 0 and 3 are in one process, 1 in another on the same host, 2 on another host. */
  private static final int RANKS = 4;

  private static final int COUNT = 100_000;

  private static Backend mixed(ReferenceOptions options) {
    List<ProcessEndpoint> endpoints =
        List.of(
            ProcessEndpoint.ofThisProcess(),
            new ProcessEndpoint(),
            new ProcessEndpoint(UUID.randomUUID()));
    return ReferenceBackend.open(RANKS, options, endpoints);
  }

  private static CommunicatorState state(Communicator comm) {
    return ((ReferenceCommunicator) Contract.get().driver(comm)).hostedRank().communicator();
  }

  /** Returns the types of the two ends of the link from one rank to another. */
  private static List<Class<?>> linkTypes(CommunicatorState[] states, int from, int to) {
    SendLink out = states[from].links().sendLink(Route.EXCHANGE, 0, from, to);
    ReceiveLink in = states[to].links().receiveLink(Route.EXCHANGE, 0, from, to);
    return List.of(
        out instanceof SameHostSendLink host ? host.link().getClass() : out.getClass(),
        in instanceof SameHostReceiveLink host ? host.link().getClass() : in.getClass());
  }

  private static Class<?> processOf(int rank) {
    return switch (rank) {
      case 0, 3 -> Integer.class;
      case 1 -> Long.class;
      default -> Void.class;
    };
  }

  private static List<Class<?>> expected(int from, int to, Transport links) {
    if (processOf(from) == processOf(to)) {
      return List.of(MemoryLink.class, MemoryLink.class);
    }
    boolean oneHost = from != 2 && to != 2;
    return oneHost && links == Transport.AUTO
        ? List.of(SharedMemoryLink.class, SharedMemoryLink.class)
        : List.of(TcpSendLink.class, TcpReceiveLink.class);
  }

  @ParameterizedTest
  @EnumSource(Transport.class)
  void eachPairOfRanksHasTheLinkOfItsPlaces(Transport links) {
    CommunicatorState[] states = new CommunicatorState[RANKS];
    Ranks.run(
        RANKS,
        mixed(ReferenceOptions.defaults().withTransport(links)),
        CommunicatorConfig.defaults(),
        (comm, stream) -> {
          states[comm.rank()] = state(comm);
          exchangeAll(comm, stream);
          synchronize(comm, stream);
          if (comm.rank() == 0) {
            for (int from = 0; from < RANKS; from++) {
              for (int to = 0; to < RANKS; to++) {
                if (from != to) {
                  assertEquals(
                      expected(from, to, links), linkTypes(states, from, to), from + " to " + to);
                }
              }
            }
          }
          synchronize(comm, stream);
        });
  }

  private static void synchronize(Communicator comm, Stream stream) {
    try (Buffer none = comm.newBuffer(DataType.INT32, 1)) {
      comm.allReduce(none, none, ReduceOp.MAX, stream);
      stream.synchronize();
    }
  }

  private static int[] read(Buffer buffer) {
    return buffer.segment().toArray(ValueLayout.JAVA_INT);
  }

  private static void fill(Buffer buffer, int[] values) {
    MemorySegment.copy(values, 0, buffer.segment(), ValueLayout.JAVA_INT, 0, values.length);
  }

  /** Sends more than fits into a slot from every rank to every other. */
  private static void exchangeAll(Communicator comm, Stream stream) {
    int rank = comm.rank();
    try (Buffer send = comm.newBuffer(DataType.INT32, (long) RANKS * COUNT);
        Buffer recv = comm.newBuffer(DataType.INT32, (long) RANKS * COUNT)) {
      fill(send, IntStream.range(0, RANKS * COUNT).map(i -> 7 * i + rank).toArray());
      comm.allToAll(send, recv, stream);
      stream.synchronize();
      int[] expected =
          IntStream.range(0, RANKS * COUNT)
              .map(i -> 7 * (rank * COUNT + i % COUNT) + i / COUNT)
              .toArray();
      assertArrayEquals(expected, read(recv));
    }
  }

  @ParameterizedTest
  @EnumSource(Algorithm.class)
  void allReduceOverMixedLinksIsCorrect(Algorithm algorithm) {
    Ranks.run(
        RANKS,
        mixed(ReferenceOptions.defaults().withAlgorithm(algorithm)),
        CommunicatorConfig.defaults(),
        (comm, stream) -> {
          try (Buffer data = comm.newBuffer(DataType.INT32, COUNT)) {
            fill(data, IntStream.range(0, COUNT).map(i -> i + comm.rank()).toArray());
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            stream.synchronize();
            assertArrayEquals(IntStream.range(0, COUNT).map(i -> 4 * i + 6).toArray(), read(data));
          }
        });
  }

  @Test
  void messagesInAGroupGoOverMixedLinks() {
    Ranks.run(
        RANKS,
        mixed(ReferenceOptions.defaults()),
        CommunicatorConfig.defaults(),
        (comm, stream) -> {
          int next = (comm.rank() + 1) % RANKS;
          int previous = (comm.rank() + RANKS - 1) % RANKS;
          try (Buffer send = comm.newBuffer(DataType.INT32, COUNT);
              Buffer recv = comm.newBuffer(DataType.INT32, COUNT)) {
            fill(send, IntStream.range(0, COUNT).map(i -> i * (comm.rank() + 1)).toArray());
            Group.run(
                () -> {
                  comm.send(send, next, stream);
                  comm.recv(recv, previous, stream);
                });
            stream.synchronize();
            assertArrayEquals(
                IntStream.range(0, COUNT).map(i -> i * (previous + 1)).toArray(), read(recv));
          }
        });
  }

  /** Returns the failure of rank 0 after rank 1, in another process, has announced a file. */
  private static NcclException failureAfterAnnouncing(Path file) {
    AtomicReference<NcclException> failure = new AtomicReference<>();
    Ranks.run(
        2,
        ReferenceBackend.openAsProcesses(2, 2, ReferenceOptions.defaults()),
        CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(20)),
        (comm, stream) -> {
          try (Buffer data = comm.newBuffer(DataType.INT32, COUNT)) {
            if (comm.rank() == 1) {
              LinkKey key = new LinkKey(Route.MESSAGES, 0, 1, 0);
              state(comm).remoteProcess(0).announceMemory(key, file);
              Thread.sleep(500);
            }
            comm.recv(data, 1 - comm.rank(), stream);
            NcclException thrown = assertThrows(NcclException.class, stream::synchronize);
            if (comm.rank() == 0) {
              failure.set(thrown);
            }
          }
        });
    return failure.get();
  }

  @Test
  void invalidLinkFileIsRefusedNamingItsProcess() throws Exception {
    try (Arena arena = Arena.ofShared()) {
      SharedMemoryLink link = SharedMemoryLink.create(Path.of("/dev/shm"), arena, 4, 1000, 1, 0);
      link.memory().set(ValueLayout.JAVA_INT, 16, 5);
      NcclException failure = failureAfterAnnouncing(link.path());
      link.discard();
      assertInstanceOf(NcclRemoteException.class, failure);
      String text = failure.getMessage();
      assertTrue(text.contains("rank 1 (process "), text);
      assertTrue(text.contains("violated the protocol: " + link.path() + " has "), text);
    }
  }

  @Test
  void foreignFileIsNeitherOpenedNorDeleted() throws Exception {
    Path file = Files.createTempFile("precious", "");
    String text = failureAfterAnnouncing(file).getMessage();
    assertTrue(
        text.contains("violated the protocol: it announced an invalid shared-memory file: " + file),
        text);
    assertTrue(Files.deleteIfExists(file));
  }

  @Test
  void missingFileMakesTheSenderUseTcp() {
    Path missing = SharedMemoryFiles.newPath(Path.of("/dev/shm"));
    LinkKey key = new LinkKey(Route.MESSAGES, 0, 1, 0);
    Ranks.run(
        2,
        ReferenceBackend.openAsProcesses(2, 2, ReferenceOptions.defaults()),
        CommunicatorConfig.defaults(),
        (comm, stream) -> {
          try (Buffer data = comm.newBuffer(DataType.INT32, COUNT)) {
            if (comm.rank() == 1) {
              state(comm).remoteProcess(0).announceMemory(key, missing);
              // The refusal arrives before the messages of a split.
              comm.split(0, 1).close();
              fill(data, IntStream.range(0, COUNT).toArray());
              comm.send(data, 0, stream);
              stream.synchronize();
              SameHostSendLink link =
                  (SameHostSendLink) state(comm).links().sendLink(Route.MESSAGES, 0, 1, 0);
              assertInstanceOf(TcpSendLink.class, link.link());
            } else {
              comm.split(0, 0).close();
              comm.recv(data, 1, stream);
              stream.synchronize();
              assertArrayEquals(IntStream.range(0, COUNT).toArray(), read(data));
            }
          }
        });
  }
}
