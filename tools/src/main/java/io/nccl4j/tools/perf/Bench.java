package io.nccl4j.tools.perf;

import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.tools.perf.Collective.Shape;
import io.nccl4j.tools.perf.TestData.Range;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.SortedSet;
import java.util.function.Consumer;
import java.util.function.IntConsumer;
import java.util.stream.IntStream;

/** Measures and checks all rows of a table. */
final class Bench implements AutoCloseable {
  /** The shortest JIT warm-up before the first table. */
  private static final double MIN_JIT_SECONDS = 1.0;

  /** The longest JIT warm-up, even if times still fall. */
  private static final double MAX_JIT_SECONDS = 1.2;

  /** The JIT warm-up ends when times have not fallen for this long. */
  private static final double STABLE_SECONDS = 0.15;

  /** The total time for the individually timed operations of a row. */
  private static final double LATENCY_SECONDS = 1;

  private static final int MIN_LATENCIES = 20;
  private static final int MAX_LATENCIES = 1000;

  private final Settings settings;
  private final Flags flags;
  private final NcclChoices choices;
  private final Settings.Blocking blocking;
  private final RankEnqueue launch;
  private final EnqueueThreads enqueueThreads;
  private final Ranks ranks;
  private final CrossRankStats stats;
  private final List<RankLocation> locations;
  private final Set<String> compiled = new HashSet<>();
  private long repetition;
  private int failedChecks;

  /**
   * Creates the threads, the communicators and the streams.
   *
   * @param choices what NCCL is to use and report, or null on the reference backend
   * @param own the locations of the ranks of this process
   * @param launch enqueues one operation: the collective itself, or a test's replacement
   */
  Bench(Settings requested, NcclChoices choices, List<RankLocation> own, RankEnqueue launch) {
    this.choices = choices;
    this.launch = launch;
    this.flags = requested.flags();
    this.blocking = flags.blocking();
    this.ranks = new Ranks(requested);
    this.enqueueThreads = new EnqueueThreads(requested.threads(), ranks::abort);
    ranks.connect(requested, enqueueThreads);
    this.stats = new CrossRankStats(ranks, requested);
    this.locations = stats.locations(own);
    checkAgreement();
    // Hosts may differ in memory: the smallest limit applies to all.
    double[] negated = {-requested.sizes().max()};
    this.settings = requested.withMaxBytes((long) -stats.max(negated)[0]);
  }

  private void checkAgreement() {
    for (int rank = 0; rank < locations.size(); rank++) {
      if (locations.get(rank).arguments() != locations.getFirst().arguments()) {
        throw new BadArguments(
            "rank %d was started with other arguments than rank 0".formatted(rank));
      }
    }
  }

  /** Returns the settings that all processes agreed on. */
  Settings settings() {
    return settings;
  }

  /** Returns the location of each rank of all processes. */
  List<RankLocation> locations() {
    return locations;
  }

  /** Waits until all threads of all processes have called this. */
  private void barrier(int thread) {
    enqueueThreads.barrier();
    if (!settings.job().alone()) {
      if (thread == 0) {
        stats.barrier();
      }
      enqueueThreads.barrier();
    }
  }

  /** Returns the number of checks that found wrong data. */
  int failedChecks() {
    return failedChecks;
  }

  /** Runs the whole table and passes on each row as soon as it is measured. */
  void run(Consumer<Row> rows) {
    for (ElementType type : flags.types.list()) {
      for (Operator op : flags.operators()) {
        for (int root : settings.roots()) {
          // Not closed on failure: stuck work may still be using the memory.
          Series series = new Series(type, op, root);
          series.run(rows);
          series.close();
        }
      }
    }
  }

  /** Aborts the communicators, which releases all waiting threads; nothing can be measured now. */
  void abort() {
    ranks.abort();
  }

  @Override
  public void close() {
    enqueueThreads.close();
    ranks.close();
  }

  /** All sizes of one type, operator and root. */
  private final class Series implements AutoCloseable {
    private final ElementType element;
    private final Operator op;
    private final int root;
    private final DataType type;
    private final TestData data;
    private final RankBuffers[] buffers;
    private final List<ReduceOp> operators = new ArrayList<>();

    Series(ElementType element, Operator op, int root) {
      this.element = element;
      this.op = op;
      this.root = root;
      this.type = element.type();
      this.data = new TestData(flags.collective, element, op, ranks.world(), root);
      this.buffers = new RankBuffers[ranks.count()];
      long count = capacity() * flags.aggregated + flags.unalign;
      // By as many threads as will use the memory. The receive buffers need no data yet: allocation
      // maps the memory, and the first operations are out of place.
      ranks.each(
          count * type.bytes(),
          rank -> {
            int device = ranks.comm(rank).device();
            RankBuffers created =
                new RankBuffers(settings.backend(), device, ranks.stream(rank), type, count);
            Range all = data.sent(ranks.number(rank), new Shape(count, count, count, 0, 0), 0);
            created.write(created.send(), all);
            buffers[rank] = created;
          });
      for (int rank = 0; rank < ranks.count(); rank++) {
        operators.add(operator(rank));
      }
    }

    private ReduceOp operator(int rank) {
      if (!flags.collective.reduces() || op.standard() != null) {
        return op.standard();
      }
      return ranks.comm(rank).newPreMulSum(type, TestData.factor(type, ranks.number(rank)));
    }

    private long capacity() {
      return settings.sizes().max() / type.bytes();
    }

    void run(Consumer<Row> rows) {
      warmUp();
      int cycle = 0;
      do {
        Settings.Sizes sizes = settings.sizes();
        for (long size = sizes.min(); size <= sizes.max(); size = sizes.after(size)) {
          rows.accept(row(shape(size)));
        }
        cycle++;
      } while (cycle != flags.cycles);
    }

    private Shape shape(long size) {
      return flags.collective.shape(size / type.bytes(), type.bytes(), ranks.world());
    }

    private void warmUp() {
      if (flags.warmup == 0) {
        return;
      }
      boolean first = compiled.isEmpty();
      String kind = flags.collective.reduces() ? element.label() + op : element.label();
      if (flags.jitWarmup() && compiled.add(kind)) {
        compile(first ? MIN_JIT_SECONDS : 0);
      }
      Settings.Sizes sizes = settings.sizes();
      for (long size = sizes.min(); size <= sizes.max(); size *= 2) {
        new IterationBody(shape(size), false, flags.warmup).run(flags.warmup);
      }
    }

    /**
     * Runs small and medium operations, out of place and in place, until their times no longer
     * fall, so that the JIT has compiled the code before the first row. All processes see the same
     * times and so run the same number of operations.
     */
    private void compile(double minSeconds) {
      long small = settings.sizes().min();
      long medium = Math.clamp(64 << 10, small, settings.sizes().max());
      List<Burst> bursts = new ArrayList<>();
      for (long size : medium > small ? List.of(small, medium) : List.of(small)) {
        bursts.add(new Burst(size, false));
        if (flags.collective.hasInPlace()) {
          bursts.add(new Burst(size, true));
        }
      }
      long start = System.nanoTime();
      double elapsed = 0;
      double lastImproved = 0;
      while (elapsed < minSeconds
          || (elapsed < lastImproved + STABLE_SECONDS && elapsed < MAX_JIT_SECONDS)) {
        boolean improved = false;
        for (Burst burst : bursts) {
          improved |= burst.run();
        }
        elapsed = stats.max(new double[] {(System.nanoTime() - start) / 1e9})[0];
        lastImproved = improved ? elapsed : lastImproved;
      }
    }

    /** Some milliseconds of an operation, run as it will be timed. */
    private final class Burst {
      private static final double SECONDS = 0.005;
      private static final int MAX_ITERATIONS = 1000;

      /** A time counts as an improvement if it is below this fraction of the best one so far. */
      private static final double IMPROVEMENT = 0.9;

      private final IterationBody work;
      private double best = Double.POSITIVE_INFINITY;

      Burst(long size, boolean inPlace) {
        this.work = new IterationBody(shape(size), inPlace, flags.iterations * flags.aggregated);
      }

      /** Runs the operation; returns whether its time improved. */
      boolean run() {
        boolean costly = flags.graphs > 0 || flags.perIteration();
        int max = costly ? flags.iterations : MAX_ITERATIONS;
        double one = best * flags.aggregated * Math.max(1, flags.graphs);
        double before = best;
        best = Math.min(best, work.time((int) Math.clamp(SECONDS / one, 1, max)).seconds());
        return best < IMPROVEMENT * before;
      }
    }

    private Row row(Shape shape) {
      boolean reduces = flags.collective.reduces() || flags.collective == Collective.SENDRECV;
      return new Row(
          shape.total() * type.bytes(),
          shape.param(),
          element.label(),
          reduces ? op.label() : "none",
          root,
          cell(shape, false),
          cell(shape, true));
    }

    /**
     * Measures and checks one operation. Without an in-place form, the in-place cell is a second
     * measurement out of place, not checked again: nccl-tests prints numbers there, too.
     */
    private Row.Cell cell(Shape shape, boolean second) {
      boolean inPlace = second && flags.collective.hasInPlace();
      IterationBody work = new IterationBody(shape, inPlace, flags.iterations * flags.aggregated);
      String algorithm = algorithm(shape, work);
      Timing timing = work.time(flags.iterations);
      double algBw =
          flags.collective.algorithmBytes(shape, type.bytes(), ranks.world())
              / timing.seconds()
              / 1e9;
      return new Row.Cell(
          timing.seconds(),
          timing.cpuSeconds(),
          algBw,
          algBw * flags.collective.busFactor(ranks.world()),
          second && !inPlace ? Row.UNCHECKED : wrong(shape, inPlace, work),
          flags.percentiles() ? Percentiles.of(work.latencies(timing.seconds())) : null,
          timing.iterations(),
          algorithm);
    }

    /** Has NCCL use the row's algorithm; returns what it chose, or null if that is not shown. */
    private String algorithm(Shape shape, IterationBody work) {
      SortedSet<String> chosen =
          choices == null ? null : choices.of(shape.total() * type.bytes(), work::runIteration);
      if (chosen == null) {
        return null;
      }
      double hash = chosen.hashCode();
      double[] range = stats.max(new double[] {hash, -hash});
      if (range[0] != -range[1]) {
        chosen.add(NcclChoices.UNKNOWN);
      }
      return NcclChoices.text(chosen);
    }

    private long wrong(Shape shape, boolean inPlace, IterationBody work) {
      if (flags.checks == 0) {
        return Row.UNCHECKED;
      }
      long wrong = 0;
      for (int check = 0; check < flags.checks && wrong == 0; check++) {
        repetition++;
        long bytes = shape.total() * type.bytes();
        ranks.each(bytes, rank -> prepare(rank, shape, inPlace));
        work.runChecked();
        long[] perRank = new long[ranks.count()];
        ranks.each(bytes, rank -> perRank[rank] = wrong(rank, shape, inPlace));
        wrong = (long) stats.sum((double) Arrays.stream(perRank).sum());
      }
      if (wrong > 0) {
        failedChecks++;
      }
      return wrong;
    }

    private void prepare(int rank, Shape shape, boolean inPlace) {
      RankBuffers own = buffers[rank];
      Range sent = data.sent(ranks.number(rank), shape, repetition);
      if (!inPlace) {
        own.write(own.send(), shifted(sent, flags.unalign));
      }
      if (!inPlace || sent.count() < shape.total()) {
        Range poison = data.untouched(0, shape.total());
        own.write(own.recv(), shifted(poison, flags.unalign));
      }
      if (inPlace) {
        own.write(
            own.recv(), shifted(sent, flags.unalign + shape.sendInPlace() * ranks.number(rank)));
      }
    }

    private long wrong(int rank, Shape shape, boolean inPlace) {
      RankBuffers own = buffers[rank];
      int number = ranks.number(rank);
      long offset = flags.unalign + (inPlace ? shape.recvInPlace() * number : 0);
      long wrong = 0;
      for (Range range : data.received(number, shape, repetition, inPlace)) {
        wrong += own.wrong(own.recv(), shifted(range, offset));
      }
      return wrong;
    }

    private Range shifted(Range range, long by) {
      return new Range(range.offset() + by, range.count(), range.pattern(), range.start());
    }

    @Override
    public void close() {
      for (ReduceOp operator : operators) {
        if (operator instanceof ReduceOp.PreMulSum created) {
          created.close();
        }
      }
      Arrays.stream(buffers).forEach(RankBuffers::close);
    }

    /**
     * One operation at one size, ready to be enqueued repeatedly. As in nccl-tests, each repetition
     * uses the next part of the buffers, so that its data is not in a cache. The operations of one
     * group never share memory, since they have no order; in nccl-tests large ones do.
     */
    private final class IterationBody {
      private final Buffer[][] sends;
      private final Buffer[][] recvs;

      IterationBody(Shape shape, boolean inPlace, int operations) {
        long steps = shape.total() == 0 ? 1 : capacity() / shape.total();
        int grouped = flags.aggregated;
        int slots = Math.clamp(steps, grouped, Math.max(grouped, operations));
        this.sends = new Buffer[ranks.count()][slots];
        this.recvs = new Buffer[ranks.count()][slots];
        for (int rank = 0; rank < ranks.count(); rank++) {
          RankBuffers own = buffers[rank];
          Buffer from = inPlace ? own.recv() : own.send();
          long sendOffset = inPlace ? shape.sendInPlace() * ranks.number(rank) : 0;
          long recvOffset = inPlace ? shape.recvInPlace() * ranks.number(rank) : 0;
          for (int slot = 0; slot < slots; slot++) {
            long at = flags.unalign + shape.total() * slot;
            sends[rank][slot] = from.slice(at + sendOffset, shape.send());
            recvs[rank][slot] = own.recv().slice(at + recvOffset, shape.recv());
          }
        }
      }

      /** Enqueues the operation for all ranks of a thread. */
      void enqueue(int thread, int operation) {
        int first = ranks.first(thread);
        int end = ranks.first(thread + 1);
        if (end - first == 1) {
          enqueueRank(first, operation);
          return;
        }
        Group.run(
            () -> {
              for (int rank = first; rank < end; rank++) {
                enqueueRank(rank, operation);
              }
            });
      }

      private void enqueueRank(int rank, int operation) {
        int slot = operation % sends[rank].length;
        launch.enqueue(
            ranks.comm(rank),
            sends[rank][slot],
            recvs[rank][slot],
            operators.get(rank),
            root,
            ranks.stream(rank));
      }

      /** Waits for all ranks of a thread. */
      void complete(int thread) {
        for (int rank = ranks.first(thread); rank < ranks.first(thread + 1); rank++) {
          ranks.complete(rank, flags.timeout());
        }
      }

      /** Runs the operation {@code operations} times, from the start of the buffers, and waits. */
      void run(int operations) {
        enqueueThreads.all(
            thread -> {
              for (int i = 0; i < operations; i++) {
                enqueue(thread, i);
              }
              complete(thread);
              return thread;
            });
      }

      /** Runs the operation once for the data check. */
      void runChecked() {
        runAsTimed(thread -> enqueue(thread, 0));
      }

      /** Runs one iteration. */
      void runIteration() {
        runAsTimed(thread -> enqueueIteration(thread, 0));
      }

      /** Enqueues operations, as a graph if graphs are timed, and waits. */
      private void runAsTimed(IntConsumer operations) {
        enqueueThreads.all(
            thread -> {
              if (flags.graphs == 0) {
                operations.accept(thread);
                complete(thread);
                return thread;
              }
              List<Graph> graphs = capture(thread, () -> operations.accept(thread));
              launch(thread, graphs);
              complete(thread);
              graphs.forEach(Graph::close);
              return thread;
            });
      }

      /** Runs iterations and returns the time of one operation. */
      Timing time(int iterations) {
        run(1);
        try (Stopwatch stopwatch = new Stopwatch(settings, ranks, iterations)) {
          List<Timing> timings = enqueueThreads.all(thread -> time(thread, iterations, stopwatch));
          double[] each = stopwatch.iterations(flags.aggregated);
          return Timing.of(timings, flags.average())
              .ofAll(stats, flags.average())
              .withIterations(each == null ? null : stats.max(each));
        }
      }

      /**
       * Times iterations one by one. Each starts after a barrier and ends when all ranks have
       * finished it. This is a separate loop, so that the main loop stays that of nccl-tests.
       *
       * @param seconds the approximate time of one operation, the same in all processes
       * @return for each iteration, the time of one operation in seconds, of the slowest thread
       */
      double[] latencies(double seconds) {
        double one = Math.max(seconds, 1e-9) * flags.aggregated;
        int count = (int) Math.clamp(LATENCY_SECONDS / one, MIN_LATENCIES, MAX_LATENCIES);
        double[] slowest = new double[count];
        for (double[] ofThread : enqueueThreads.all(thread -> latencies(thread, count))) {
          Arrays.setAll(slowest, i -> Math.max(slowest[i], ofThread[i]));
        }
        return stats.max(slowest);
      }

      private double[] latencies(int thread, int count) {
        double[] seconds = new double[count];
        for (int i = 0; i < count; i++) {
          barrier(thread);
          long start = System.nanoTime();
          enqueueIteration(thread, i);
          complete(thread);
          seconds[i] = (System.nanoTime() - start) / 1e9 / flags.aggregated;
        }
        return seconds;
      }

      private Timing time(int thread, int iterations, Stopwatch stopwatch) {
        return flags.graphs > 0
            ? timeGraph(thread, iterations)
            : timeIterations(thread, iterations, stopwatch);
      }

      /** Captures the iterations of a thread's ranks, and times the launches of their graphs. */
      private Timing timeGraph(int thread, int iterations) {
        List<Graph> graphs =
            capture(
                thread,
                () -> {
                  for (int i = 0; i < iterations; i++) {
                    iterate(thread, i);
                  }
                });
        barrier(thread);
        long start = System.nanoTime();
        for (int launches = 0; launches < flags.graphs; launches++) {
          launch(thread, graphs);
        }
        long enqueued = System.nanoTime();
        complete(thread);
        long end = System.nanoTime();
        graphs.forEach(Graph::close);
        double operations = (double) iterations * flags.aggregated * flags.graphs * 1e9;
        return new Timing((end - start) / operations, (enqueued - start) / operations, null);
      }

      private List<Graph> capture(int thread, Runnable body) {
        List<Stream> streams =
            IntStream.range(ranks.first(thread), ranks.first(thread + 1))
                .mapToObj(ranks::stream)
                .toList();
        return Graph.capture(streams, body);
      }

      private void launch(int thread, List<Graph> graphs) {
        for (int i = 0; i < graphs.size(); i++) {
          graphs.get(i).launch(ranks.stream(ranks.first(thread) + i));
        }
      }

      private Timing timeIterations(int thread, int iterations, Stopwatch stopwatch) {
        barrier(thread);
        long untimed = 0;
        long start = System.nanoTime();
        for (int i = 0; i < iterations; i++) {
          stopwatch.start(ranks, thread, i);
          iterate(thread, i);
          if (blocking == Settings.Blocking.WAIT_AND_UNTIMED_BARRIER) {
            complete(thread);
            stopwatch.stop(ranks, thread, i);
            long waitStart = System.nanoTime();
            barrier(thread);
            untimed += System.nanoTime() - waitStart;
          }
        }
        stopwatch.finish(ranks, thread);
        long enqueued = System.nanoTime();
        complete(thread);
        long end = System.nanoTime();
        double operations = (double) iterations * flags.aggregated * 1e9;
        return new Timing(
            (end - start - untimed) / operations, (enqueued - start - untimed) / operations, null);
      }

      private void enqueueIteration(int thread, int iteration) {
        int aggregated = flags.aggregated;
        if (aggregated == 1) {
          enqueue(thread, iteration);
        } else {
          Group.run(
              () -> {
                for (int i = 0; i < aggregated; i++) {
                  enqueue(thread, iteration * aggregated + i);
                }
              });
        }
      }

      private void iterate(int thread, int iteration) {
        enqueueIteration(thread, iteration);
        switch (blocking) {
          case WAIT_AND_BARRIER -> {
            complete(thread);
            barrier(thread);
          }
          case WAIT -> complete(thread);
          case NONE, WAIT_AND_UNTIMED_BARRIER -> {}
        }
      }
    }
  }
}
