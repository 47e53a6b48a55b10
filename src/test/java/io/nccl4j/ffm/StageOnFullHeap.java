package io.nccl4j.ffm;

import io.nccl4j.Buffer;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.FullHeap;
import io.nccl4j.ReduceOp;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** A program in which a stage completes and a communicator is aborted while the heap is full. */
public final class StageOnFullHeap {
  private static final int WARM_CALLS = 50;
  private static final long HELD_MILLIS = 1000;

  private static volatile boolean warm;
  private static volatile boolean full;

  private StageOnFullHeap() {}

  /** Prints the results of the stage and of the abort. */
  public static void main(String[] arguments) throws Exception {
    Pair pair = new Pair(CommunicatorConfig.defaults());
    List<Buffer> values = pair.registrable(DataType.INT32, 1);
    Thread other = Thread.ofPlatform().daemon().start(() -> secondRank(pair, values.get(1)));
    for (int i = 0; i < WARM_CALLS; i++) {
      sum(pair, 0, values.get(0));
      stage(pair).get(10, TimeUnit.SECONDS);
    }
    while (!warm) {
      Thread.sleep(1);
    }
    sum(pair, 0, values.get(0));
    CompletableFuture<Void> last = stage(pair);
    FullHeap.fill();
    full = true;
    Thread.sleep(HELD_MILLIS);
    FullHeap.release();
    last.get(10, TimeUnit.SECONDS);
    other.join();
    System.out.println("stage: complete");
    FullHeap.fill();
    Throwable refusal = abort(pair);
    FullHeap.release();
    System.out.println("abort: " + refusal);
    System.out.println("again: " + abort(pair));
    pair.rank(1).abort();
    System.out.println("communicators: " + StandIn.live("communicator"));
  }

  private static void secondRank(Pair pair, Buffer value) {
    for (int i = 0; i < WARM_CALLS; i++) {
      sum(pair, 1, value);
    }
    pair.stream(1).synchronize();
    warm = true;
    while (!full) {
      Thread.onSpinWait();
    }
    sum(pair, 1, value);
  }

  private static void sum(Pair pair, int rank, Buffer value) {
    pair.rank(rank).allReduce(value, value, ReduceOp.SUM, pair.stream(rank));
  }

  private static CompletableFuture<Void> stage(Pair pair) {
    return pair.stream(0).completion().toCompletableFuture();
  }

  private static Throwable abort(Pair pair) {
    try {
      pair.rank(0).abort();
      return null;
    } catch (OutOfMemoryError noMemory) {
      return noMemory;
    }
  }
}
