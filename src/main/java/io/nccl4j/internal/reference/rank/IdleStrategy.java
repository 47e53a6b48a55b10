package io.nccl4j.internal.reference.rank;

import java.util.concurrent.locks.LockSupport;

/**
 * How one worker thread waits for what other threads do: it spins for a moment if every rank can
 * have a processor of its own, then lets others run, then sleeps. A sleep ends early by {@link
 * #wake}; a wake-up that is missed costs one short sleep, never more.
 */
public final class IdleStrategy {
  private static final int PROCESSORS = Runtime.getRuntime().availableProcessors();
  private static final int SPINS = 30;
  private static final long YIELDING_NANOS = 200_000;

  /** Nobody can wake a thread of another process, so a sleep may last too long. */
  private static final long YIELDING_TO_PROCESSES_NANOS = 2_000_000;

  private static final long SHORTEST_SLEEP_NANOS = 50_000;
  private static final long LONGEST_SLEEP_NANOS = 1_000_000;

  private final Thread thread;
  private volatile boolean asleep;
  private int spins;
  private long yielding = YIELDING_NANOS;
  private int turns;
  private long since;
  private long sleep;

  /** Makes that of a worker thread. */
  public IdleStrategy(Thread thread) {
    this.thread = thread;
  }

  /**
   * Starts to wait with so many threads that wait for each other.
   *
   * @param together whether all of them are of this process
   */
  public void begin(int crowd, boolean together) {
    yielding = together ? YIELDING_NANOS : YIELDING_TO_PROCESSES_NANOS;
    spins = crowd <= PROCESSORS ? SPINS : 0;
    turns = 0;
  }

  /** Says that there was something to do. */
  void reset() {
    turns = 0;
  }

  /**
   * Waits a little.
   *
   * @return how long nothing has happened, in nanoseconds; 0 while that is too short to be looked
   *     at
   */
  long pause() {
    if (turns < spins) {
      turns++;
      Thread.onSpinWait();
      return 0;
    }
    long now = System.nanoTime();
    if (turns == spins) {
      turns++;
      since = now;
      sleep = SHORTEST_SLEEP_NANOS;
    }
    if (now - since < yielding) {
      letOthersRun();
      return 0;
    }
    asleep = true;
    LockSupport.parkNanos(this, sleep);
    asleep = false;
    sleep = Math.min(2 * sleep, LONGEST_SLEEP_NANOS);
    // A pending interrupt would turn every sleep into a spin; nobody may interrupt a worker.
    Thread.interrupted();
    return now - since;
  }

  @SuppressWarnings("ThreadPriorityCheck") // The point: to give the processor to a waited-for rank.
  private static void letOthersRun() {
    Thread.yield();
  }

  /** Ends a sleep, from any thread. */
  void wake() {
    if (asleep) {
      LockSupport.unpark(thread);
    }
  }
}
