package io.nccl4j.spi;

/**
 * Sees the collectives of one communicator as they are launched, in the thread that launches them.
 * One thread at a time calls it, as with the communicator. Calls that are captured are seen when
 * their graph is launched.
 */
public interface LaunchListener {
  /** How a launch ended. */
  enum Outcome {
    /** The calls are on their streams. */
    LAUNCHED,
    /** It failed, and none of the calls is guaranteed to have been launched. */
    FAILED,
    /** None of the calls was launched; the next ones get their numbers. */
    REJECTED
  }

  /**
   * Called just before a collective is launched. Must not block.
   *
   * @param number the number of the collective in its communicator
   * @param graph whether a graph launches it
   * @param alone whether the communicator launches nothing else with it
   */
  void launching(EnqueuedCall call, long number, boolean graph, boolean alone);

  /**
   * Called once for each collective when all that are launched together have been announced; may
   * wait for other ranks.
   *
   * @throws RuntimeException to refuse the launch
   */
  default void awaitOthers() {
    // Without a wait.
  }

  /** Called when the launch has ended, also for a call that was not announced. Must not throw. */
  void launched(EnqueuedCall call, long number, Outcome outcome);
}
