package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.FullHeap;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.time.Duration;
import java.util.List;

/**
 * A program whose two ranks start their first all-gather while the heap is full, so that the
 * workers of their streams cannot allocate its links; it continues once there is memory again.
 */
public final class RanksOnFullHeap {
  private static final Duration SOON = Duration.ofSeconds(5);
  private static final int ABOVE_QUEUE_CAPACITY = 100;
  private static final long HELD_MILLIS = 1000;

  private static volatile boolean full;

  private final Communicator comm;
  private final Communicator alone;
  private final Stream stream;
  private final Buffer one;
  private final Buffer all;
  private Thread thread;
  private volatile boolean ready;
  private volatile boolean called;
  private volatile Throwable refused;

  private RanksOnFullHeap(Communicator comm) {
    this.comm = comm;
    this.alone = comm.backend().newCommunicators(comm.device()).getFirst();
    this.stream = comm.newStream();
    this.one = comm.newBuffer(DataType.INT32, 1);
    this.all = comm.newBuffer(DataType.INT32, comm.size());
    DataType.INT32.setLong(one.segment(), 0, comm.rank() + 1);
  }

  /** Prints the outcome of the all-gather on each rank, and the results of later operations. */
  public static void main(String[] arguments) throws Exception {
    CommunicatorConfig config = CommunicatorConfig.defaults().withTimeout(SOON);
    Backend backend = ReferenceBackend.open(2);
    List<RanksOnFullHeap> ranks =
        backend.newCommunicators(new int[] {0, 1}, config).stream()
            .map(RanksOnFullHeap::new)
            .toList();
    for (RanksOnFullHeap rank : ranks) {
      rank.thread = Thread.ofPlatform().daemon().start(rank::gatherOnFullHeap);
    }
    while (!ranks.get(0).ready || !ranks.get(1).ready) {
      Thread.sleep(1);
    }
    FullHeap.fill();
    full = true;
    while (!ranks.get(0).called || !ranks.get(1).called) {
      Thread.sleep(1);
    }
    Thread.sleep(HELD_MILLIS);
    FullHeap.release();
    for (RanksOnFullHeap rank : ranks) {
      rank.thread.join();
      System.out.println("rank " + rank.comm.rank() + ": " + rank.outcome());
    }
    ranks.forEach(rank -> rank.comm.abort());
    ranks.forEach(rank -> rank.outcome());
    List<Communicator> later = backend.newCommunicators(new int[] {0, 1}, config);
    for (RanksOnFullHeap rank : ranks) {
      Thread.ofPlatform()
          .start(() -> later.get(rank.comm.device()).allGather(rank.one, rank.all, rank.stream))
          .join();
    }
    for (RanksOnFullHeap rank : ranks) {
      System.out.println(
          "later: "
              + rank.outcome()
              + ", "
              + DataType.INT32.getLong(rank.all.segment(), 0)
              + " "
              + DataType.INT32.getLong(rank.all.segment(), 1));
    }
    later.forEach(Communicator::close);
    System.out.println("closed");
  }

  /**
   * Calls the all-gather when the heap is full. Everything that the call itself needs was created
   * before: the entries of the queue, and the constants of the code, by an all-gather of a
   * communicator with one rank.
   */
  private void gatherOnFullHeap() {
    for (int i = 0; i < ABOVE_QUEUE_CAPACITY; i++) {
      comm.allReduce(all, all, ReduceOp.MAX, stream);
      alone.allGather(one, one, stream);
    }
    stream.synchronize();
    comm.allReduce(all, all, ReduceOp.MAX, stream);
    stream.synchronize();
    ready = true;
    while (!full) {
      Thread.onSpinWait();
    }
    try {
      comm.allGather(one, all, stream);
    } catch (Throwable failure) {
      refused = failure;
    }
    called = true;
  }

  private String outcome() {
    Throwable refusal = refused;
    refused = null;
    if (refusal != null) {
      return "refused: " + refusal;
    }
    try {
      stream.synchronize(SOON.multipliedBy(2));
      return "ok";
    } catch (RuntimeException | Error failure) {
      return failure.toString().lines().findFirst().orElse("");
    }
  }
}
