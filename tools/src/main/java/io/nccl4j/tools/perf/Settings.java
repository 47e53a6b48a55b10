package io.nccl4j.tools.perf;

import io.nccl4j.Backend;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * One checked run: what to measure and how.
 *
 * @param collective what to measure
 * @param backend what carries it out
 * @param choices which algorithm was asked for, and by which variables; by name
 * @param job which of the processes this one is
 * @param firstDevice the device of this process's first rank; the others have those after it
 * @param threads how many threads enqueue; {@code -t}
 * @param ranksPerThread how many ranks each of them drives; {@code -g}
 * @param types the element types, one after the other; {@code -d}
 * @param ops the operators; {@code -o}
 * @param roots the roots, or -1 alone where there is none; {@code -r}
 * @param sizes the sizes; {@code -b -e -i -f}
 * @param iterations the timed iterations; {@code -n}
 * @param warmup the iterations before, for each size; {@code -w}
 * @param jitWarmup whether operations run before, until the JVM has compiled what they take; {@code
 *     --no-jit-warmup}
 * @param aggregated the operations of one iteration, launched as one group; {@code -m}
 * @param cycles how often the whole table is run, 0 for ever; {@code -N}
 * @param checks how often the data of each row is checked; {@code -c}
 * @param average which thread's time counts; {@code -a}
 * @param blocking when to wait; {@code -z}
 * @param timeout the longest wait for the ranks' streams; {@code -T}
 * @param cpuTime whether the table shows the time of enqueuing; {@code -C}
 * @param perIteration whether each iteration is timed by itself; {@code -I}
 * @param percentiles whether single operations are timed too; {@code --percentiles}
 * @param graphLaunches how often the iterations, captured as a graph, are launched; 0 for no graph;
 *     {@code -G}
 * @param skipped how many of those do not count; {@code -K}
 * @param unalign how many elements the buffers begin behind their allocation; {@code -u}
 * @param parallelInit whether each thread makes its own communicators; {@code -p}
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
    /** After each operation, and for each other. */
    WAIT_AND_MEET,
    /** After each operation. */
    WAIT,
    /** After each iteration, and for each other, which is not timed. */
    WAIT_AND_MEET_UNTIMED
  }

  /**
   * The sizes of a table.
   *
   * @param min the first, in bytes
   * @param max none is larger
   * @param factor what each is of the one before, or 1
   * @param step what each is above the one before, where the factor is 1
   */
  record Sizes(long min, long max, long factor, long step) {
    /** Returns the size after another, or one beyond {@code max}. */
    long after(long size) {
      if (factor > 1) {
        return size > max / factor ? Long.MAX_VALUE : size * factor;
      }
      return step > 0 && size <= max - step ? size + step : Long.MAX_VALUE;
    }

    /** Returns the same but for the largest size. */
    Sizes withMost(long bytes) {
      return new Sizes(Math.min(min, bytes), bytes, factor, step);
    }

    /** Returns how many there are. */
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

  /** Returns how many ranks are in this process. */
  int ranks() {
    return threads * ranksPerThread;
  }

  /** Returns how many ranks are in all processes together. */
  int worldRanks() {
    return ranks() * job.processes();
  }

  /** Returns the rank that is the first of this process. */
  int firstRank() {
    return ranks() * job.process();
  }

  /** Returns the device of one of this process's ranks; ranks may have to share one. */
  int deviceOf(int local) {
    return (firstDevice + local) % backend.devices().size();
  }

  /** Returns the same but for the largest size. */
  Settings withMost(long bytes) {
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
        sizes.withMost(bytes),
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

  /** Returns how many rows one cycle has. */
  long rows() {
    return sizes.count() * types.size() * ops.size() * roots.size();
  }
}
