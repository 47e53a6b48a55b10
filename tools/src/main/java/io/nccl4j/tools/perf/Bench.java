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
import java.util.function.Consumer;
import java.util.stream.IntStream;

/** Runs all rows of a table and measures and checks each. */
final class Bench implements AutoCloseable {
  /**
   * How long the first operations run for the JVM to compile them, and the most of any where times
   * still fall.
   */
  private static final double LEAST_COMPILING_SECONDS = 1.0;

  private static final double MOST_COMPILING_SECONDS = 1.2;

  /** What the JVM compiles next may take so long. */
  private static final double CALM_SECONDS = 0.15;

  /** How long the single operations of a row that are timed may take together. */
  private static final double LATENCY_SECONDS = 1;

  private static final int LEAST_LATENCIES = 20;
  private static final int MOST_LATENCIES = 1000;

  private final Settings settings;
  private final RankEnqueue launch;
  private final EnqueueThreads enqueueThreads;
  private final Ranks ranks;
  private final CrossRankStats stats;
  private final List<RankLocation> locations;
  private final Set<String> compiled = new HashSet<>();
  private long repetition;
  private int failedChecks;

  /**
   * Makes the threads, the communicators and the streams.
   *
   * @param own where the ranks of this process are
   * @param launch enqueues one operation: the collective itself, or what a test puts in its place
   */
  Bench(Settings wanted, List<RankLocation> own, RankEnqueue launch) {
    this.launch = launch;
    this.ranks = new Ranks(wanted);
    this.enqueueThreads = new EnqueueThreads(wanted.threads(), ranks::abort);
    ranks.connect(wanted, enqueueThreads);
    this.stats = new CrossRankStats(ranks, wanted);
    this.locations = stats.locations(own);
    checkAgreement();
    // Hosts may have room for more than others.
    this.settings = wanted.withMost((long) -stats.most(new double[] {-wanted.sizes().max()})[0]);
  }

  private void checkAgreement() {
    for (int rank = 0; rank < locations.size(); rank++) {
      if (locations.get(rank).arguments() != locations.getFirst().arguments()) {
        throw new BadArguments(
            "rank %d was started with another command line than rank 0".formatted(rank));
      }
    }
  }

  /** Returns what is measured, which all processes agree on. */
  Settings settings() {
    return settings;
  }

  /** Returns where all ranks are. */
  List<RankLocation> locations() {
    return locations;
  }

  /** Waits until all threads of all processes have come here. */
  private void meet(int thread) {
    enqueueThreads.meet();
    if (!settings.job().alone()) {
      if (thread == 0) {
        stats.meet();
      }
      enqueueThreads.meet();
    }
  }

  /** Returns how many checks have found wrong data. */
  int failedChecks() {
    return failedChecks;
  }

  /** Runs the whole table; each row is handed over when it is measured. */
  void run(Consumer<Row> rows) {
    for (ElementType type : settings.types()) {
      for (Operator op : settings.ops()) {
        for (int root : settings.roots()) {
          // Not closed when it fails: work that is stuck may still be using the memory.
          Series series = new Series(type, op, root);
          series.run(rows);
          series.close();
        }
      }
    }
  }

  /** Releases whoever waits for a rank; nothing can be measured any more. */
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
    private final RankBuffers[] memories;
    private final List<ReduceOp> operators = new ArrayList<>();

    Series(ElementType element, Operator op, int root) {
      this.element = element;
      this.op = op;
      this.root = root;
      this.type = element.type();
      this.data = new TestData(settings.collective(), element, op, ranks.world(), root);
      this.memories = new RankBuffers[ranks.count()];
      long count = capacity() * settings.aggregated() + settings.unalign();
      // In as many threads as will use it. What is received into needs no data yet: whoever
      // allocates memory has it mapped, and the first operations are out of place.
      ranks.each(
          count * type.bytes(),
          rank -> {
            int device = ranks.comm(rank).device();
            RankBuffers memory =
                new RankBuffers(settings.backend(), device, ranks.stream(rank), type, count);
            Range all = data.sent(ranks.number(rank), new Shape(count, count, count, 0, 0), 0);
            memory.write(memory.send(), all);
            memories[rank] = memory;
          });
      for (int rank = 0; rank < ranks.count(); rank++) {
        operators.add(operator(rank));
      }
    }

    private ReduceOp operator(int rank) {
      if (!settings.collective().reduces() || op.standard() != null) {
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
      } while (cycle != settings.cycles());
    }

    private Shape shape(long size) {
      return settings.collective().shape(size / type.bytes(), type.bytes(), ranks.world());
    }

    private void warmUp() {
      if (settings.warmup() == 0) {
        return;
      }
      boolean first = compiled.isEmpty();
      String kind = settings.collective().reduces() ? element.label() + op : element.label();
      if (settings.jitWarmup() && compiled.add(kind)) {
        compile(first ? LEAST_COMPILING_SECONDS : 0);
      }
      Settings.Sizes sizes = settings.sizes();
      for (long size = sizes.min(); size <= sizes.max(); size *= 2) {
        new IterationBody(shape(size), false, settings.warmup()).run(settings.warmup());
      }
    }

    /**
     * Times small and medium operations of both forms in turn until that takes no less time than
     * before: else the first rows would show what the JVM has not compiled yet. All processes see
     * the same times, so they agree on how many operations there are.
     */
    private void compile(double least) {
      long small = settings.sizes().min();
      long medium = Math.clamp(64 << 10, small, settings.sizes().max());
      List<Burst> bursts = new ArrayList<>();
      for (long size : medium > small ? List.of(small, medium) : List.of(small)) {
        bursts.add(new Burst(size, false));
        if (settings.collective().hasInPlace()) {
          bursts.add(new Burst(size, true));
        }
      }
      long start = System.nanoTime();
      double passed = 0;
      double lastFall = 0;
      while (passed < least
          || (passed < lastFall + CALM_SECONDS && passed < MOST_COMPILING_SECONDS)) {
        boolean fell = false;
        for (Burst burst : bursts) {
          fell |= burst.run();
        }
        passed = stats.most(new double[] {(System.nanoTime() - start) / 1e9})[0];
        lastFall = fell ? passed : lastFall;
      }
    }

    /** An operation as it will be timed, but as often as takes some milliseconds. */
    private final class Burst {
      private static final double SECONDS = 0.005;
      private static final int MOST_ITERATIONS = 1000;

      /** What takes no less than this share of the time before counts as equal. */
      private static final double EQUAL = 0.9;

      private final IterationBody work;
      private double best = Double.POSITIVE_INFINITY;

      Burst(long size, boolean inPlace) {
        this.work =
            new IterationBody(shape(size), inPlace, settings.iterations() * settings.aggregated());
      }

      /** Runs the operation; returns whether that was faster than ever before. */
      boolean run() {
        boolean costly = settings.graphLaunches() > 0 || settings.perIteration();
        int most = costly ? settings.iterations() : MOST_ITERATIONS;
        double one = best * settings.aggregated() * Math.max(1, settings.graphLaunches());
        double before = best;
        best = Math.min(best, work.time((int) Math.clamp(SECONDS / one, 1, most)).seconds());
        return best < EQUAL * before;
      }
    }

    private Row row(Shape shape) {
      boolean reduces =
          settings.collective().reduces() || settings.collective() == Collective.SENDRECV;
      return new Row(
          shape.total() * type.bytes(),
          shape.param(),
          element.label(),
          reduces ? op.label() : "none",
          root,
          cell(shape, false),
          settings.collective().hasInPlace() ? cell(shape, true) : Row.Cell.IMPOSSIBLE);
    }

    private Row.Cell cell(Shape shape, boolean inPlace) {
      IterationBody work =
          new IterationBody(shape, inPlace, settings.iterations() * settings.aggregated());
      Timing timing = work.time(settings.iterations());
      double algBw =
          settings.collective().algorithmBytes(shape, type.bytes(), ranks.world())
              / timing.seconds()
              / 1e9;
      return new Row.Cell(
          timing.seconds(),
          timing.cpuSeconds(),
          algBw,
          algBw * settings.collective().busFactor(ranks.world()),
          wrong(shape, inPlace, work),
          settings.percentiles() ? Percentiles.of(work.latencies(timing.seconds())) : null,
          timing.iterations());
    }

    private long wrong(Shape shape, boolean inPlace, IterationBody work) {
      if (settings.checks() == 0) {
        return Row.UNCHECKED;
      }
      long wrong = 0;
      for (int check = 0; check < settings.checks() && wrong == 0; check++) {
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
      RankBuffers memory = memories[rank];
      Range sent = data.sent(ranks.number(rank), shape, repetition);
      if (!inPlace) {
        memory.write(memory.send(), moved(sent, settings.unalign()));
      }
      if (!inPlace || sent.count() < shape.total()) {
        Range poison = data.untouched(0, shape.total());
        memory.write(memory.recv(), moved(poison, settings.unalign()));
      }
      if (inPlace) {
        memory.write(
            memory.recv(),
            moved(sent, settings.unalign() + shape.sendInPlace() * ranks.number(rank)));
      }
    }

    private long wrong(int rank, Shape shape, boolean inPlace) {
      RankBuffers memory = memories[rank];
      int number = ranks.number(rank);
      long offset = settings.unalign() + (inPlace ? shape.recvInPlace() * number : 0);
      long wrong = 0;
      for (Range range : data.received(number, shape, repetition, inPlace)) {
        wrong += memory.wrong(memory.recv(), moved(range, offset));
      }
      return wrong;
    }

    private Range moved(Range span, long by) {
      return new Range(span.offset() + by, span.count(), span.pattern(), span.start());
    }

    @Override
    public void close() {
      for (ReduceOp operator : operators) {
        if (operator instanceof ReduceOp.PreMulSum created) {
          created.close();
        }
      }
      Arrays.stream(memories).forEach(RankBuffers::close);
    }

    /**
     * One operation at one size, ready to be enqueued again and again: each time further on in the
     * buffers, as nccl-tests does, so that no cache holds what it needs. The operations of one
     * group have places of their own, since they have no order; nccl-tests lets large ones share
     * theirs.
     */
    private final class IterationBody {
      private final Buffer[][] sends;
      private final Buffer[][] recvs;

      IterationBody(Shape shape, boolean inPlace, int operations) {
        long steps = shape.total() == 0 ? 1 : capacity() / shape.total();
        int together = settings.aggregated();
        int places = Math.clamp(steps, together, Math.max(together, operations));
        this.sends = new Buffer[ranks.count()][places];
        this.recvs = new Buffer[ranks.count()][places];
        for (int rank = 0; rank < ranks.count(); rank++) {
          RankBuffers memory = memories[rank];
          Buffer from = inPlace ? memory.recv() : memory.send();
          long sendOffset = inPlace ? shape.sendInPlace() * ranks.number(rank) : 0;
          long recvOffset = inPlace ? shape.recvInPlace() * ranks.number(rank) : 0;
          for (int place = 0; place < places; place++) {
            long at = settings.unalign() + shape.total() * place;
            sends[rank][place] = from.slice(at + sendOffset, shape.send());
            recvs[rank][place] = memory.recv().slice(at + recvOffset, shape.recv());
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
        int place = operation % sends[rank].length;
        launch.enqueue(
            ranks.comm(rank),
            sends[rank][place],
            recvs[rank][place],
            operators.get(rank),
            root,
            ranks.stream(rank));
      }

      /** Waits for all ranks of a thread. */
      void complete(int thread) {
        for (int rank = ranks.first(thread); rank < ranks.first(thread + 1); rank++) {
          ranks.complete(rank, settings.timeout());
        }
      }

      /** Runs the operation some times, from the beginning of the buffers on, and waits. */
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

      /**
       * Runs the operation once, for its data to be checked: through a graph where graphs are
       * timed.
       */
      void runChecked() {
        if (settings.graphLaunches() == 0) {
          run(1);
          return;
        }
        enqueueThreads.all(
            thread -> {
              List<Graph> graphs = capture(thread, () -> enqueue(thread, 0));
              launch(thread, graphs);
              complete(thread);
              graphs.forEach(Graph::close);
              return thread;
            });
      }

      /** Runs some iterations and says how long one operation took. */
      Timing time(int iterations) {
        run(1);
        try (Stopwatch stopwatch = new Stopwatch(settings, ranks, iterations)) {
          List<Timing> timings = enqueueThreads.all(thread -> time(thread, iterations, stopwatch));
          double[] each = stopwatch.iterations(settings.aggregated());
          return Timing.of(timings, settings.average())
              .ofAll(stats, settings.average())
              .withIterations(each == null ? null : stats.most(each));
        }
      }

      /**
       * Times iterations one by one, each from its enqueuing until all ranks have finished it,
       * after all have met. A loop of its own leaves the others as nccl-tests has them.
       *
       * @param seconds about how long one takes, on which all processes agree
       * @return the time of one operation of each, in seconds, of the slowest thread
       */
      double[] latencies(double seconds) {
        double one = Math.max(seconds, 1e-9) * settings.aggregated();
        int count = (int) Math.clamp(LATENCY_SECONDS / one, LEAST_LATENCIES, MOST_LATENCIES);
        double[] slowest = new double[count];
        for (double[] ofThread : enqueueThreads.all(thread -> latencies(thread, count))) {
          Arrays.setAll(slowest, i -> Math.max(slowest[i], ofThread[i]));
        }
        return stats.most(slowest);
      }

      private double[] latencies(int thread, int count) {
        double[] seconds = new double[count];
        for (int i = 0; i < count; i++) {
          meet(thread);
          long start = System.nanoTime();
          enqueueIteration(thread, i);
          complete(thread);
          seconds[i] = (System.nanoTime() - start) / 1e9 / settings.aggregated();
        }
        return seconds;
      }

      private Timing time(int thread, int iterations, Stopwatch stopwatch) {
        return settings.graphLaunches() > 0
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
        meet(thread);
        long start = System.nanoTime();
        for (int launches = 0; launches < settings.graphLaunches(); launches++) {
          launch(thread, graphs);
        }
        long enqueued = System.nanoTime();
        complete(thread);
        long end = System.nanoTime();
        graphs.forEach(Graph::close);
        double operations =
            (double) iterations * settings.aggregated() * settings.graphLaunches() * 1e9;
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
        meet(thread);
        long untimed = 0;
        long start = System.nanoTime();
        for (int i = 0; i < iterations; i++) {
          stopwatch.start(ranks, thread, i);
          iterate(thread, i);
          if (settings.blocking() == Settings.Blocking.WAIT_AND_MEET_UNTIMED) {
            complete(thread);
            stopwatch.stop(ranks, thread, i);
            long waiting = System.nanoTime();
            meet(thread);
            untimed += System.nanoTime() - waiting;
          }
        }
        stopwatch.finish(ranks, thread);
        long enqueued = System.nanoTime();
        complete(thread);
        long end = System.nanoTime();
        double operations = (double) iterations * settings.aggregated() * 1e9;
        return new Timing(
            (end - start - untimed) / operations, (enqueued - start - untimed) / operations, null);
      }

      private void enqueueIteration(int thread, int iteration) {
        int aggregated = settings.aggregated();
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
        switch (settings.blocking()) {
          case WAIT_AND_MEET -> {
            complete(thread);
            meet(thread);
          }
          case WAIT -> complete(thread);
          case NONE, WAIT_AND_MEET_UNTIMED -> {}
        }
      }
    }
  }
}
