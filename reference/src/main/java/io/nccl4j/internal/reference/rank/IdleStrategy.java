package io.nccl4j.internal.reference.rank;

import java.util.concurrent.locks.LockSupport;

/**
 * How a worker thread waits for other threads: it spins briefly if there is a processor for every
 * rank, then yields, then sleeps. {@link #wake} ends a sleep early; a missed wake-up costs one
 * short sleep at most.
 */
public final class IdleStrategy {
  private static final int PROCESSORS = Runtime.getRuntime().availableProcessors();
  private static final int SPINS = 30;
  private static final long YIELDING_NANOS = 200_000;

  /** Longer, since threads of other processes cannot end a sleep. */
  private static final long YIELDING_TO_PROCESSES_NANOS = 2_000_000;

  private static final long SHORTEST_SLEEP_NANOS = 50_000;
  private static final long LONGEST_SLEEP_NANOS = 1_000_000;

  private final Thread thread;
  private volatile boolean asleep;
  private int spins;
  private long yielding = YIELDING_NANOS;
  private int pauses;
  private long since;
  private long sleep;

  /** Creates the idle strategy of a worker thread. */
  public IdleStrategy(Thread thread) {
    this.thread = thread;
  }

  /**
   * Prepares for an operation.
   *
   * @param ranks the number of ranks, whose threads wait for each other
   * @param inOneProcess whether all of them are in this process
   */
  public void begin(int ranks, boolean inOneProcess) {
    yielding = inOneProcess ? YIELDING_NANOS : YIELDING_TO_PROCESSES_NANOS;
    spins = ranks <= PROCESSORS ? SPINS : 0;
    pauses = 0;
  }

  /** Resets the wait after progress was made. */
  void reset() {
    pauses = 0;
  }

  /**
   * Waits for a short time.
   *
   * @return the time without progress in nanoseconds; 0 while it is too short to matter
   */
  long pause() {
    if (pauses < spins) {
      pauses++;
      Thread.onSpinWait();
      return 0;
    }
    long now = System.nanoTime();
    if (pauses == spins) {
      pauses++;
      since = now;
      sleep = SHORTEST_SLEEP_NANOS;
    }
    if (now - since < yielding) {
      yieldProcessor();
      return 0;
    }
    asleep = true;
    LockSupport.parkNanos(this, sleep);
    asleep = false;
    sleep = Math.min(2 * sleep, LONGEST_SLEEP_NANOS);
    // A pending interrupt would turn every sleep into a spin; workers are not to be interrupted.
    Thread.interrupted();
    return now - since;
  }

  @SuppressWarnings("ThreadPriorityCheck") // Gives the processor to a rank that this one waits for.
  private static void yieldProcessor() {
    Thread.yield();
  }

  /** Ends a sleep, from any thread. */
  void wake() {
    if (asleep) {
      LockSupport.unpark(thread);
    }
  }
}
