package io.nccl4j;

/**
 * What one rank does with its communicator, as {@link Backend#runRanks} runs it.
 *
 * @param <X> the checked exception that it may throw; {@link RuntimeException} if there is none
 */
@FunctionalInterface
public interface RankBody<X extends Exception> {
  /**
   * Runs one rank, in a thread of its own.
   *
   * @param communicator this rank's communicator, which is closed when this method returns
   * @throws X if the rank fails, which ends the other ranks too
   */
  void run(Communicator communicator) throws X;
}
