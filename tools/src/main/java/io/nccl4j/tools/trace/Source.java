package io.nccl4j.tools.trace;

/**
 * The process that wrote a recording.
 *
 * @param file the path of the recording, as given
 * @param pid the id of the process, or -1 if it is unknown
 * @param host the name of its host
 * @param clock identifies the clock, which several processes may share
 */
record Source(String file, long pid, String host, String clock) {
  @Override
  public String toString() {
    return pid < 0 ? file : host + " (process " + pid + ")";
  }
}
