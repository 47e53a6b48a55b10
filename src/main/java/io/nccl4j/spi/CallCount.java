package io.nccl4j.spi;

/**
 * Where a collective is among a rank's calls of the same operation, which do not include those in
 * graphs.
 *
 * @param number the number of the call, from 1; 0 if it is not known
 * @param later how many calls have been made since and have returned; -1 if the call itself has not
 *     returned
 * @param pending how many calls have been made since and have not returned
 */
public record CallCount(long number, long later, long pending) {
  /** Stands for a message, a part of a graph, or a call of long ago. */
  public static final CallCount UNKNOWN = new CallCount(0, 0, 0);
}
