package io.nccl4j.tools.trace;

/**
 * A step in the life of a communicator, a library or a graph.
 *
 * @param source the recording
 * @param rank the rank in the communicator from which all others were split; -1 if it belongs to
 *     none
 * @param name the kind of step
 * @param ended when it ended, in nanoseconds since 1970
 * @param nanos its duration
 * @param about a description of the communicator, library or graph
 * @param error why it failed, or null
 */
record Step(
    Source source, int rank, String name, long ended, long nanos, String about, String error) {
  Step shifted(long by) {
    return new Step(source, rank, name, ended + by, nanos, about, error);
  }
}
