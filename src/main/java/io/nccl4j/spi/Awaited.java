package io.nccl4j.spi;

import java.util.BitSet;

/**
 * What an operation waits for.
 *
 * @param text the description, for messages
 * @param ranks the ranks of the communicator that it waits for
 */
public record Awaited(String text, BitSet ranks) {}
