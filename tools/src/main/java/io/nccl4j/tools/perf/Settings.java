package io.nccl4j.tools.perf;

import io.nccl4j.Backend;
import java.util.List;
import java.util.Map;

/**
 * The command line of a run, and what follows from it on this machine.
 *
 * @param flags the command line
 * @param backend the backend that runs the collective
 * @param choices the algorithm and protocol settings, by option or variable name
 * @param job this process's position among the processes
 * @param firstDevice the device of this process's first rank; the other ranks use the next ones
 * @param ranksPerThread the number of ranks per thread
 * @param roots the roots, or only -1 if there is none
 * @param sizes the sizes, within the memory
 */
record Settings(
    Flags flags,
    Backend backend,
    Map<String, String> choices,
    Job job,
    int firstDevice,
    int ranksPerThread,
    List<Integer> roots,
    Sizes sizes) {

  /** Which thread's time counts. */
  enum Average {
    RANK0,
    AVG,
    MIN,
    MAX
  }

  /** When the threads wait. */
  enum Blocking {
    /** Once, at the end. */
    NONE,
    /** After each operation, with a barrier. */
    WAIT_AND_BARRIER,
    /** After each operation. */
    WAIT,
    /** After each iteration, with a barrier that is not timed. */
    WAIT_AND_UNTIMED_BARRIER
  }

  /**
   * The sizes of a table.
   *
   * @param min the first size, in bytes
   * @param max the upper limit, in bytes
   * @param factor the ratio of successive sizes, or 1
   * @param step the difference of successive sizes if the factor is 1
   */
  record Sizes(long min, long max, long factor, long step) {
    /** Returns the next size, or one beyond {@code max}. */
    long after(long size) {
      if (factor > 1) {
        return size > max / factor ? Long.MAX_VALUE : size * factor;
      }
      return step > 0 && size <= max - step ? size + step : Long.MAX_VALUE;
    }

    /** Returns these sizes with another upper limit. */
    Sizes withMaxBytes(long bytes) {
      return new Sizes(Math.min(min, bytes), bytes, factor, step);
    }

    /** Returns the number of sizes. */
    long count() {
      if (factor == 1) {
        return step == 0 ? 1 : (max - min) / step + 1;
      }
      long count = 0;
      for (long size = min; size <= max; size = after(size)) {
        count++;
      }
      return count;
    }
  }

  /** Returns the number of threads that enqueue. */
  int threads() {
    return flags.ranks.enqueueThreads();
  }

  /** Returns the number of ranks in this process. */
  int ranks() {
    return threads() * ranksPerThread;
  }

  /** Returns the number of ranks in all processes. */
  int worldRanks() {
    return ranks() * job.processes();
  }

  /** Returns this process's first rank. */
  int firstRank() {
    return ranks() * job.process();
  }

  /** Returns the device of one of this process's ranks; ranks may share devices. */
  int deviceOf(int local) {
    return (firstDevice + local) % backend.devices().size();
  }

  /** Returns these settings with another upper limit of the sizes. */
  Settings withMaxBytes(long bytes) {
    return new Settings(
        flags,
        backend,
        choices,
        job,
        firstDevice,
        ranksPerThread,
        roots,
        sizes.withMaxBytes(bytes));
  }

  /** Returns the number of rows of one cycle. */
  long rows() {
    return sizes.count() * flags.types.list().size() * flags.operators().size() * roots.size();
  }
}
