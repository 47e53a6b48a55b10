package io.nccl4j.tools.perf;

import io.nccl4j.Backend;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * The validated settings of a run.
 *
 * @param collective the collective to measure
 * @param backend the backend that runs it
 * @param choices the algorithm and protocol settings, by option or variable name
 * @param job this process's position among the processes
 * @param firstDevice the device of this process's first rank; the other ranks use the next ones
 * @param threads the number of threads that enqueue; {@code -t}
 * @param ranksPerThread the number of ranks per thread; {@code -g}
 * @param types the element types; {@code -d}
 * @param ops the operators; {@code -o}
 * @param roots the roots, or only -1 if there is none; {@code -r}
 * @param sizes the sizes; {@code -b -e -i -f}
 * @param iterations the timed iterations; {@code -n}
 * @param warmup the warm-up iterations of each size; {@code -w}
 * @param jitWarmup whether operations run until the JIT has compiled them; {@code --no-jit-warmup}
 * @param aggregated the operations of one iteration, launched as one group; {@code -m}
 * @param cycles the number of runs of the whole table, 0 for unlimited; {@code -N}
 * @param checks the number of data checks per row; {@code -c}
 * @param average which thread's time counts; {@code -a}
 * @param blocking when to wait; {@code -z}
 * @param timeout the longest wait for the ranks' streams; {@code -T}
 * @param cpuTime whether the table shows the enqueue time; {@code -C}
 * @param perIteration whether each iteration is timed separately; {@code -I}
 * @param percentiles whether single operations are also timed; {@code --percentiles}
 * @param graphLaunches how often the iterations, captured as a graph, are launched; 0 for no graph;
 *     {@code -G}
 * @param skipped the number of iterations that {@code -I} leaves out; {@code -K}
 * @param unalign the offset of the buffers in their allocations, in elements; {@code -u}
 * @param parallelInit whether each thread creates its own communicators; {@code -p}
 */
record Settings(
    Collective collective,
    Backend backend,
    Map<String, String> choices,
    Job job,
    int firstDevice,
    int threads,
    int ranksPerThread,
    List<ElementType> types,
    List<Operator> ops,
    List<Integer> roots,
    Sizes sizes,
    int iterations,
    int warmup,
    boolean jitWarmup,
    int aggregated,
    int cycles,
    int checks,
    Average average,
    Blocking blocking,
    Duration timeout,
    boolean cpuTime,
    boolean perIteration,
    boolean percentiles,
    int graphLaunches,
    int skipped,
    int unalign,
    boolean parallelInit) {

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

  /** Returns the number of ranks in this process. */
  int ranks() {
    return threads * ranksPerThread;
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
        collective,
        backend,
        choices,
        job,
        firstDevice,
        threads,
        ranksPerThread,
        types,
        ops,
        roots,
        sizes.withMaxBytes(bytes),
        iterations,
        warmup,
        jitWarmup,
        aggregated,
        cycles,
        checks,
        average,
        blocking,
        timeout,
        cpuTime,
        perIteration,
        percentiles,
        graphLaunches,
        skipped,
        unalign,
        parallelInit);
  }

  /** Returns the number of rows of one cycle. */
  long rows() {
    return sizes.count() * types.size() * ops.size() * roots.size();
  }
}
