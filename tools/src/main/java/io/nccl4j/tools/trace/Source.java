package io.nccl4j.tools.trace;

/**
 * Whose recording it is.
 *
 * @param file the recording's path, as it was given
 * @param pid the process that recorded, or -1 where it does not say so
 * @param host the name of its host
 * @param clock what it has in common with all processes that share its clock
 */
record Source(String file, long pid, String host, String clock) {
  @Override
  public String toString() {
    return pid < 0 ? file : host + " (process " + pid + ")";
  }
}
