package io.nccl4j.tools.trace;

/**
 * A step in the life of a communicator, a library or a graph.
 *
 * @param source whose recording has it
 * @param rank whose it is, counted in the communicator from which all others were split; -1 if
 *     nobody's
 * @param name what happened
 * @param ended when, in nanoseconds since 1970
 * @param nanos how long it took
 * @param about what it happened to
 * @param error why it failed, or null
 */
record Step(
    Source source, int rank, String name, long ended, long nanos, String about, String error) {
  Step later(long by) {
    return new Step(source, rank, name, ended + by, nanos, about, error);
  }
}
