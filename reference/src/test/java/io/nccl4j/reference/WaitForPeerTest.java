package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.reference.ReferenceCommunicator;
import io.nccl4j.internal.reference.rank.CommunicatorState;
import io.nccl4j.internal.reference.transport.Presence;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.schedule.Layout;
import io.nccl4j.spi.Contract;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Every wait of rank 0 of two ranks for its peer ends: with the data if the peer is slow, else with
 * an error that names the peer. Rank 0 repeats its call until it fails, since a send that fits its
 * link completes without the peer. All cells of a table wait at the same time.
 */
class WaitForPeerTest {
  private static final CommunicatorConfig PATIENT =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(60));
  private static final Duration TIMEOUT = Duration.ofSeconds(1);

  /** Well below the patient time-out: a peer that leaves is noticed at once. */
  private static final Duration LIMIT = Duration.ofSeconds(15);

  private static final Duration DELAY = Duration.ofMillis(300);

  /** Less than a link of any transport has room for. */
  private static final int BELOW = 1 << 10;

  /** More than a link of any transport has room for, which for TCP includes the sockets. */
  private static final int ABOVE = 8 << 20;

  private enum Call {
    SEND,
    RECEIVE,
    GROUP,
    SCATTER,
    GATHER;

    boolean onlyReceives() {
      return this == RECEIVE || this == GATHER;
    }
  }

  private enum Peer {
    ABSENT("NcclTimeoutException, failed [], missing [1]"),
    SLOW("the data"),
    CLOSES("NcclRemoteException, failed [1], missing []"),
    ABORTS("NcclRemoteException, failed [1], missing []"),
    DIES("NcclRemoteException, failed [1], missing []"),
    CALLS_ANOTHER("NcclInvalidUsageException, failed [], missing []");

    private final String outcome;

    Peer(String outcome) {
      this.outcome = outcome;
    }
  }

  private record Cell(Call call, int bytes, Peer peer) {}

  private record Result(Cell cell, int rank, String outcome, long millis) {}

  @Test
  @Timeout(120)
  void waitForRankOfThisProcessEnds() throws Exception {
    check("in process", runInThreads(ReferenceBackend.open(2, smallSlices())));
  }

  @ParameterizedTest
  @EnumSource(Transport.class)
  @Timeout(120)
  void waitForRankOfAnotherProcessEnds(Transport transport) throws Exception {
    List<Result> results =
        runInThreads(
            ReferenceBackend.openAsProcesses(2, 2, smallSlices().withTransport(transport)));
    results.addAll(runWithProcess(transport));
    check(transport.toString(), results);
  }

  /** Rank 0 has reported the end of a broadcast whose data is lost on the way. */
  @Test
  @Timeout(60)
  void waitForLostDataEnds() throws Exception {
    ReferenceOptions options = ReferenceOptions.defaults().withTransport(Transport.TCP);
    List<Communicator> comms =
        ReferenceBackend.openAsProcesses(2, 2, options).newCommunicators(new int[] {0, 1}, PATIENT);
    Communicator comm = comms.get(1);
    Ranks.setTimeout(comm, TIMEOUT);
    try (Stream stream = comm.newStream();
        Buffer data = comm.newBuffer(DataType.INT32, 4)) {
      comm.broadcast(data, 0, stream);
      Ranks.awaitEntered(comm, 1);
      CommunicatorState communicator =
          ((ReferenceCommunicator) Contract.get().driver(comm)).hostedRank().communicator();
      ByteArrayOutputStream report = new ByteArrayOutputStream();
      communicator.rankState(1).write(new DataOutputStream(report), Presence.HERE);
      // Its last collective is its last finished one.
      byte[] finished = ByteBuffer.wrap(report.toByteArray()).putLong(10, 1).array();
      communicator.rankState(0).read(new DataInputStream(new ByteArrayInputStream(finished)));
      NcclTimeoutException late =
          assertThrows(NcclTimeoutException.class, () -> stream.synchronize(LIMIT));
      String text =
          "all other ranks have completed broadcast(count 4, INT32, root 0), but their data did not"
              + " arrive";
      assertTrue(late.getMessage().contains(text), late.getMessage());
    } finally {
      comms.forEach(Communicator::abort);
    }
  }

  private static ReferenceOptions smallSlices() {
    return ReferenceOptions.defaults().withLayout(Layout.defaults().withSliceBytes(4096));
  }

  private static List<Cell> cells(Peer peer) {
    List<Cell> cells = new ArrayList<>();
    for (Call call : Call.values()) {
      // A wait for data that never comes is the same for every size. A scatter that completes
      // waits for nobody; MismatchTest has it.
      boolean completes = peer == Peer.CALLS_ANOTHER || peer == Peer.CLOSES;
      boolean sameAsAbove = call == Call.SCATTER ? completes : call.onlyReceives();
      if (peer == Peer.SLOW || !sameAsAbove) {
        cells.add(new Cell(call, BELOW, peer));
      }
      cells.add(new Cell(call, ABOVE, peer));
    }
    return cells;
  }

  private static void check(String transport, List<Result> results) {
    List<String> wrong =
        results.stream()
            .filter(result -> !result.outcome().equals(result.cell().peer().outcome))
            .map(Result::toString)
            .toList();
    long longest = results.stream().mapToLong(Result::millis).max().orElseThrow();
    System.out.printf(
        "waits for a peer, %s: %d outcomes, the longest wait %d ms%n",
        transport, results.size(), longest);
    assertEquals("", String.join("\n", wrong));
  }

  private static List<Result> runInThreads(Backend backend) throws Exception {
    List<FutureTask<Result>> ranks = new ArrayList<>();
    for (Peer peer : Peer.values()) {
      for (Cell cell : peer == Peer.DIES ? List.<Cell>of() : cells(peer)) {
        List<Communicator> comms = backend.newCommunicators(new int[] {0, 1}, PATIENT);
        boolean bothCall = peer == Peer.SLOW || peer == Peer.CALLS_ANOTHER;
        CountDownLatch begun = new CountDownLatch(1);
        CountDownLatch over = new CountDownLatch(bothCall ? 2 : 1);
        ranks.add(start(cell, comms.get(0), begun, over));
        switch (peer) {
          case CLOSES -> leave(begun, comms.get(1)::close);
          case ABORTS -> leave(begun, comms.get(1)::abort);
          case SLOW, CALLS_ANOTHER -> ranks.add(start(cell, comms.get(1), begun, over));
          default -> {}
        }
      }
    }
    return await(ranks);
  }

  /** Waits for a rank of another process, which is killed. */
  private static List<Result> runWithProcess(Transport transport) throws Exception {
    Backend backend =
        ReferenceBackend.open(2, ReferenceOptions.defaults().withTransport(transport));
    UniqueId id = backend.newUniqueId();
    List<Cell> cells = cells(Peer.DIES);
    List<FutureTask<Result>> ranks = new ArrayList<>();
    CountDownLatch begun = new CountDownLatch(cells.size());
    try (RankProcesses processes = new RankProcesses(transport, PATIENT.timeout().orElseThrow())) {
      processes.start(id.toHex(), 2, IntStream.of(1), "children", "" + cells.size());
      try (Communicator parent = backend.newCommunicator(id, 2, 0, PATIENT)) {
        for (Cell cell : cells) {
          ranks.add(start(cell, parent.split(0, 0), begun, new CountDownLatch(1)));
        }
        processes.await(1, "is ready");
        begun.await();
        processes.signal(0, "KILL");
        return await(ranks);
      }
    }
  }

  private static void leave(CountDownLatch begun, Runnable leaving) {
    Thread.ofPlatform()
        .daemon()
        .start(
            () -> {
              Interrupts.awaitUninterruptibly(begun::await);
              leaving.run();
            });
  }

  private static FutureTask<Result> start(
      Cell cell, Communicator comm, CountDownLatch begun, CountDownLatch over) {
    FutureTask<Result> task = new FutureTask<>(() -> run(cell, comm, begun, over));
    Thread.ofPlatform().daemon().name("wait-for-peer").start(task);
    return task;
  }

  private static List<Result> await(List<FutureTask<Result>> ranks) throws Exception {
    List<Result> results = new ArrayList<>();
    for (FutureTask<Result> rank : ranks) {
      results.add(rank.get(3 * LIMIT.toSeconds(), TimeUnit.SECONDS));
    }
    return results;
  }

  private static Result run(Cell cell, Communicator comm, CountDownLatch begun, CountDownLatch over)
      throws InterruptedException {
    try (Stream stream = comm.newStream();
        Buffer source = comm.newBuffer(DataType.UINT8, 2L * cell.bytes());
        Buffer target = comm.newBuffer(DataType.UINT8, 2L * cell.bytes())) {
      source.fill((byte) 1, stream);
      stream.synchronize();
      if (cell.peer() == Peer.ABSENT) {
        Ranks.setTimeout(comm, TIMEOUT);
      }
      begun.countDown();
      long start = System.nanoTime();
      String outcome = outcome(cell, comm, source, target, stream);
      long millis = (System.nanoTime() - start) / 1_000_000;
      over.countDown();
      // An abort could change the outcome of the peer.
      over.await();
      comm.abort();
      return new Result(cell, comm.rank(), outcome, millis);
    }
  }

  private static String outcome(
      Cell cell, Communicator comm, Buffer source, Buffer target, Stream stream)
      throws InterruptedException {
    try {
      if (cell.peer() == Peer.SLOW) {
        if (comm.rank() == 1) {
          Thread.sleep(DELAY);
        }
        call(cell, comm, source, target, stream);
        stream.synchronize(LIMIT);
        return hasData(cell, comm.rank(), target) ? "the data" : "other data";
      }
      Deadline deadline = Deadline.after(LIMIT);
      while (!deadline.passed()) {
        if (comm.rank() == 1) {
          comm.allReduce(source.slice(0, 1), target.slice(0, 1), ReduceOp.SUM, stream);
        } else {
          call(cell, comm, source, target, stream);
        }
        stream.synchronize(LIMIT);
      }
      return "no error";
    } catch (NcclException e) {
      return "%s, failed %s, missing %s"
          .formatted(e.getClass().getSimpleName(), e.failedRanks(), e.missingRanks());
    }
  }

  private static void call(
      Cell cell, Communicator comm, Buffer source, Buffer target, Stream stream) {
    boolean root = comm.rank() == 0;
    Buffer from = source.slice(0, cell.bytes());
    Buffer to = target.slice(0, cell.bytes());
    switch (cell.call()) {
      case SEND, RECEIVE -> {
        if (root == (cell.call() == Call.SEND)) {
          comm.send(from, 1 - comm.rank(), stream);
        } else {
          comm.recv(to, 1 - comm.rank(), stream);
        }
      }
      case GROUP ->
          Group.run(
              () -> {
                comm.send(from, 1 - comm.rank(), stream);
                comm.recv(to, 1 - comm.rank(), stream);
              });
      case SCATTER -> comm.scatter(root ? source : null, to, 0, stream);
      case GATHER -> comm.gather(from, root ? target : null, 0, stream);
    }
  }

  /** Returns whether this rank has received what the call sends to it. */
  private static boolean hasData(Cell cell, int rank, Buffer target) {
    int received =
        switch (cell.call()) {
          case SEND -> rank;
          case RECEIVE -> 1 - rank;
          case GROUP, SCATTER -> 1;
          case GATHER -> rank == 0 ? 2 : 0;
        };
    byte[] expected = new byte[2 * cell.bytes()];
    Arrays.fill(expected, 0, received * cell.bytes(), (byte) 1);
    return MemorySegment.ofArray(expected).mismatch(target.segment()) < 0;
  }
}
