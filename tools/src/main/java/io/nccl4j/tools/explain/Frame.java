package io.nccl4j.tools.explain;

import java.util.List;

/**
 * The concurrent moves of all ranks on one slice of each chunk.
 *
 * @param loop the loop of a ring, or the chunk of a tree
 * @param slice the slice
 * @param step the step
 * @param firstFrame the index of the first frame of this loop and slice
 * @param moves the moves of the ranks that do something
 */
record Frame(int loop, int slice, int step, int firstFrame, List<Move> moves) {}
