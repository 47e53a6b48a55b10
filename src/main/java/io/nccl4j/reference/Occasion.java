package io.nccl4j.reference;

import java.util.BitSet;

/**
 * What the ranks of a world meet for: every rank counts its calls of a kind, so that its number-th
 * one is everybody's.
 *
 * @param function what they call
 * @param excluded the ranks that do not come; one kind of occasion for each such set
 * @param number how many of the kind there were before
 */
record Occasion(String function, BitSet excluded, long number) {
  static final String SPLIT = "split";
  static final String SHRINK = "shrink";
  static final String GROW = "grow";
}
