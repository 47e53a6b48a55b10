package io.nccl4j.drill;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CudaException;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.Operation;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.Creation;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;

/**
 * Runs cells of the drill at the same time, each with a communicator of three ranks which are
 * threads of this process.
 */
public final class Drill {
  private static final int RANKS = 3;
  private static final int VICTIM = 2;
  private static final int COUNT = 8;
  private static final Duration DELAY = Duration.ofMillis(300);
  private static final long TIMEOUT_SECONDS = 120;

  /**
   * One cell of the drill.
   *
   * @param config the configuration of its communicator
   * @param warm whether the ranks complete another collective first
   * @param limit the longest wait of a rank for its stream, and then for an error
   */
  public record Cell(
      Operation operation,
      DrillFault fault,
      CommunicatorConfig config,
      boolean warm,
      Duration limit) {}

  /**
   * The result of a cell.
   *
   * @param outcomes the outcomes of ranks 0 and 1, and of rank 2 if it makes the call
   */
  public record CellResult(Cell cell, List<Outcome> outcomes) {}

  private final Cell cell;
  private final List<Communicator> comms;
  // Cells warm up one after the other: all at once, they may need longer than their timeouts.
  private final CountDownLatch warmedBefore;
  private final CountDownLatch warmed = new CountDownLatch(RANKS);
  // Holds back the clean-up of each rank, which could change the outcome of the others.
  private final CountDownLatch over = new CountDownLatch(RANKS);

  private Drill(Cell cell, List<Communicator> comms, CountDownLatch warmedBefore) {
    this.cell = cell;
    this.comms = comms;
    this.warmedBefore = warmedBefore;
  }

  /** Runs cells and returns their outcomes, which the caller checks. */
  public static List<CellResult> run(Backend backend, List<Cell> cells) throws Exception {
    List<Drill> drills = new ArrayList<>();
    CountDownLatch warmedBefore = new CountDownLatch(0);
    for (Cell cell : cells) {
      Drill drill =
          new Drill(
              cell,
              Creation.retry(
                  NcclException.class,
                  () -> backend.newCommunicators(new int[] {0, 1, VICTIM}, cell.config())),
              warmedBefore);
      drills.add(drill);
      warmedBefore = drill.warmed;
    }
    CyclicBarrier together = new CyclicBarrier(RANKS * cells.size());
    List<List<FutureTask<Outcome>>> ranks = new ArrayList<>();
    for (Drill drill : drills) {
      List<FutureTask<Outcome>> tasks = new ArrayList<>();
      for (int rank = 0; rank < RANKS; rank++) {
        int self = rank;
        FutureTask<Outcome> task = new FutureTask<>(() -> drill.runRank(self, together));
        Thread.ofPlatform().daemon().name("drill-rank-" + rank).start(task);
        tasks.add(task);
      }
      ranks.add(tasks);
    }
    List<CellResult> results = new ArrayList<>();
    for (int i = 0; i < drills.size(); i++) {
      List<Outcome> outcomes = new ArrayList<>();
      for (FutureTask<Outcome> task : ranks.get(i)) {
        Outcome outcome = task.get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
        if (outcome != null) {
          outcomes.add(outcome);
        }
      }
      results.add(new CellResult(cells.get(i), outcomes));
    }
    return results;
  }

  /** Runs one rank; returns the outcome of its call, or null if it makes none. */
  private Outcome runRank(int rank, CyclicBarrier together) throws Exception {
    Communicator comm = comms.get(rank);
    Outcome outcome;
    try (Stream stream = comm.newStream();
        DrillCall warming = new DrillCall(Operation.ALL_REDUCE, DataType.INT32, 1, comm, stream);
        DrillCall call = prepare(rank, comm, stream)) {
      // An allocation may wait for a collective of another cell, which waits for its ranks.
      together.await(TIMEOUT_SECONDS, TimeUnit.SECONDS);
      warmedBefore.await(TIMEOUT_SECONDS, TimeUnit.SECONDS);
      try {
        if (cell.warm()) {
          warming.enqueue();
          stream.synchronize(Duration.ofSeconds(TIMEOUT_SECONDS));
        }
      } finally {
        warmed.countDown();
      }
      together.await(TIMEOUT_SECONDS, TimeUnit.SECONDS);
      try {
        outcome = callOrFail(rank, call, comm, stream);
      } finally {
        over.countDown();
        over.await(TIMEOUT_SECONDS, TimeUnit.SECONDS);
        comm.abort();
        finish(stream);
      }
    }
    return outcome;
  }

  private DrillCall prepare(int rank, Communicator comm, Stream stream) {
    boolean victim = rank == VICTIM;
    Operation operation = cell.operation();
    if (victim && cell.fault() == DrillFault.OTHER_OPERATION) {
      operation = other(operation);
    }
    boolean otherType = victim && cell.fault() == DrillFault.OTHER_TYPE;
    boolean otherCount = victim && cell.fault() == DrillFault.OTHER_COUNT;
    return new DrillCall(
        operation,
        otherType ? DataType.FLOAT32 : DataType.INT32,
        otherCount ? COUNT + 1 : COUNT,
        comm,
        stream);
  }

  /** Returns the operation that rank 2 calls instead of another one. */
  public static Operation other(Operation operation) {
    return operation == Operation.ALL_REDUCE ? Operation.ALL_GATHER : Operation.ALL_REDUCE;
  }

  private Outcome callOrFail(int rank, DrillCall call, Communicator comm, Stream stream)
      throws InterruptedException {
    DrillFault fault = cell.fault();
    if (rank == VICTIM) {
      if (fault == DrillFault.LATE || fault == DrillFault.DEAD) {
        Thread.sleep(DELAY);
      }
      if (fault == DrillFault.DEAD) {
        comm.abort();
      }
      if (fault == DrillFault.DEAD || fault == DrillFault.MISSING || fault == DrillFault.STOPPED) {
        return null;
      }
    }
    return Outcome.of(call, comm, stream, fault != DrillFault.LATE, cell.limit());
  }

  /** Waits for the work that an abort has ended, and closes the stream. */
  private static void finish(Stream stream) {
    try {
      stream.synchronize(Duration.ofSeconds(TIMEOUT_SECONDS));
    } catch (NcclException | CudaException expected) {
      // The stream reports the abort, or an earlier failure.
    }
    try {
      stream.close();
    } catch (CudaException expected) {
      // As above.
    }
  }
}
