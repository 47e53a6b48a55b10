package io.nccl4j.spi;

import java.util.BitSet;

/**
 * What an operation waits for.
 *
 * @param text the description, for messages
 * @param ranks the ranks of the communicator that it waits for and that have not failed, as far as
 *     is known
 * @param failed the ranks that do not answer or have left the communicator
 */
public record Awaited(String text, BitSet ranks, BitSet failed) {
  /** Creates a description without failed ranks. */
  public Awaited(String text, BitSet ranks) {
    this(text, ranks, new BitSet());
  }
}
