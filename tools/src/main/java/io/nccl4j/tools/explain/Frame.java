package io.nccl4j.tools.explain;

import java.util.List;

/**
 * What all ranks do at the same time to one slice of each chunk.
 *
 * @param loop on a ring the loop, on a tree the chunk
 * @param slice the slice
 * @param step the step
 * @param opening which frame is the first of this loop and slice
 * @param moves what each rank does, those that do nothing left out
 */
record Frame(int loop, int slice, int step, int opening, List<Move> moves) {}
