package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.drill.DrillCall;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * The first collective of two ranks differs: each rank gets an error that names the number and both
 * calls, at the latest in the next collective or when it closes. In some cells both ranks only send
 * in the first collective, and both complete it.
 */
class MismatchTest {
  private static final CommunicatorConfig PATIENT =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(60));
  private static final int COUNT = 4;
  private static final String EXPECTED = "the expected error";
  private static final String NO_ERROR = "no error";

  private enum Then {
    NEXT_COLLECTIVE,
    CLOSE
  }

  private record Arguments(
      Operation operation, int root, int count, DataType type, ReduceOp operator) {
    static Arguments of(Operation operation, int root) {
      return new Arguments(operation, root, COUNT, DataType.INT32, ReduceOp.SUM);
    }

    Arguments withCount(int other) {
      return new Arguments(operation, root, other, type, operator);
    }

    Arguments withType(DataType other) {
      return new Arguments(operation, root, count, other, operator);
    }

    Arguments withOperator(ReduceOp other) {
      return new Arguments(operation, root, count, type, other);
    }

    void call(Communicator comm, Buffer send, Buffer recv, Stream stream) {
      Buffer one = send.slice(0, count);
      Buffer all = send.slice(0, 2L * count);
      Buffer oneOut = recv.slice(0, count);
      Buffer allOut = recv.slice(0, 2L * count);
      boolean atRoot = comm.rank() == root;
      switch (operation) {
        case ALL_REDUCE -> comm.allReduce(one, oneOut, operator, stream);
        case BROADCAST -> comm.broadcast(one, oneOut, root, stream);
        case REDUCE -> comm.reduce(one, atRoot ? oneOut : null, operator, root, stream);
        case ALL_GATHER -> comm.allGather(one, allOut, stream);
        case REDUCE_SCATTER -> comm.reduceScatter(all, oneOut, operator, stream);
        case ALL_TO_ALL -> comm.allToAll(all, allOut, stream);
        case GATHER -> comm.gather(one, atRoot ? allOut : null, root, stream);
        case SCATTER -> comm.scatter(atRoot ? all : null, oneOut, root, stream);
        default -> throw new IllegalArgumentException(operation + " is no collective");
      }
    }

    /** Returns the description in messages. */
    @Override
    public String toString() {
      boolean reduces =
          operation == Operation.ALL_REDUCE
              || operation == Operation.REDUCE
              || operation == Operation.REDUCE_SCATTER;
      return "%s(count %d, %s%s%s)"
          .formatted(
              operation.method(),
              count,
              type,
              reduces ? operator == ReduceOp.SUM ? ", sum" : ", max" : "",
              operation.rooted() ? ", root " + root : "");
    }
  }

  /** One cell: the calls of ranks 0 and 1. */
  private record Cell(String differs, List<Arguments> calls, Then then) {
    boolean leavesOutCall(int rank) {
      return calls.get(rank).count() == 0;
    }

    /** Returns whether the first rank to close cannot know that the other one will not call. */
    boolean firstMayClose() {
      return then == Then.CLOSE && leavesOutCall(0);
    }
  }

  @Test
  @Timeout(120)
  void mismatchInOneProcessIsReportedToEachRank() throws Exception {
    run("in process", ReferenceBackend.open(2));
  }

  @ParameterizedTest
  @EnumSource(Transport.class)
  @Timeout(120)
  void mismatchBetweenProcessesIsReportedToEachRank(Transport transport) throws Exception {
    ReferenceOptions options = ReferenceOptions.defaults().withTransport(transport);
    run(transport.toString(), ReferenceBackend.openAsProcesses(2, 2, options));
  }

  private static List<Cell> cells() {
    List<Cell> cells = new ArrayList<>();
    List<Operation> operations = DrillCall.collectives();
    for (int i = 0; i < operations.size(); i++) {
      Operation operation = operations.get(i);
      Operation other = operations.get((i + 1) % operations.size());
      for (int root = 0; root < 2; root++) {
        Arguments call = Arguments.of(operation, root);
        if (operation.rooted()) {
          add(cells, "root", call, Arguments.of(operation, 1 - root));
        }
        if (operation.rooted() || root == 0) {
          add(cells, "zero count", call.withCount(0), call);
        }
      }
      Arguments call = Arguments.of(operation, 1);
      add(cells, "count", call, call.withCount(COUNT + 1));
      add(cells, "type", call, call.withType(DataType.FLOAT32));
      add(cells, "operation", call, Arguments.of(other, 1));
      if (call.toString().contains("sum")) {
        add(cells, "operator", call, call.withOperator(ReduceOp.MAX));
      }
    }
    return cells;
  }

  private static void add(List<Cell> cells, String differs, Arguments ofRank0, Arguments ofRank1) {
    for (Then then : Then.values()) {
      cells.add(new Cell(differs, List.of(ofRank0, ofRank1), then));
    }
  }

  private static void run(String transport, Backend backend) throws Exception {
    List<Cell> cells = cells();
    List<List<FutureTask<String>>> outcomes = new ArrayList<>();
    for (Cell cell : cells) {
      List<Communicator> comms = backend.newCommunicators(new int[] {0, 1}, PATIENT);
      CountDownLatch called = new CountDownLatch(2);
      CountDownLatch over = new CountDownLatch(2);
      List<FutureTask<String>> ranks = new ArrayList<>();
      for (int r = 0; r < 2; r++) {
        int self = r;
        FutureTask<String> rank = new FutureTask<>(() -> outcome(cell, comms, self, called, over));
        Thread.ofPlatform().daemon().name("mismatch").start(rank);
        ranks.add(rank);
      }
      outcomes.add(ranks);
    }
    List<String> wrong = new ArrayList<>();
    for (int i = 0; i < cells.size(); i++) {
      Set<String> ofRanks = new TreeSet<>();
      for (FutureTask<String> rank : outcomes.get(i)) {
        ofRanks.add(rank.get(60, TimeUnit.SECONDS));
      }
      if (cells.get(i).firstMayClose()) {
        ofRanks.remove(NO_ERROR);
      }
      if (!ofRanks.equals(Set.of(EXPECTED))) {
        wrong.add(cells.get(i) + ": " + ofRanks);
      }
    }
    System.out.printf("mismatches, %s: %d cells%n", transport, cells.size());
    assertEquals("", String.join("\n", wrong));
  }

  private static String outcome(
      Cell cell, List<Communicator> comms, int rank, CountDownLatch called, CountDownLatch over)
      throws InterruptedException {
    Communicator comm = comms.get(rank);
    try (Stream stream = comm.newStream();
        Buffer send = comm.newBuffer(cell.calls().get(rank).type(), 2 * COUNT + 2);
        Buffer recv = comm.newBuffer(cell.calls().get(rank).type(), 2 * COUNT + 2);
        Buffer next = comm.newBuffer(DataType.INT8, 3)) {
      try {
        cell.calls().get(rank).call(comm, send, recv, stream);
        if (cell.then() == Then.NEXT_COLLECTIVE) {
          stream.synchronize();
          comm.broadcast(next, 0, stream);
        }
        stream.synchronize();
        called.countDown();
        if (cell.leavesOutCall(0)) {
          // The other rank may wait for this one in its call.
          Ranks.awaitEntered(comms.get(1), 1);
        } else {
          // A rank that closed now would end the call of the other one before it is compared.
          called.await();
        }
        comm.close();
        return NO_ERROR;
      } catch (NcclException e) {
        called.countDown();
        return check(cell, rank, e);
      } finally {
        over.countDown();
        over.await();
        comm.abort();
      }
    }
  }

  private static String check(Cell cell, int rank, NcclException e) {
    boolean closedBefore =
        cell.firstMayClose()
            && rank == 1
            && e instanceof NcclRemoteException
            && e.failedRanks().contains(1 - rank);
    String text = e.getMessage();
    boolean named =
        e instanceof NcclInvalidUsageException
            && e.sequenceNumber().orElse(0) == 1
            && text.contains("collective number 1")
            && (cell.leavesOutCall(0) || text.contains(cell.calls().get(0).toString()))
            && text.contains(cell.calls().get(1).toString());
    return named || closedBefore ? EXPECTED : e.toString();
  }
}
