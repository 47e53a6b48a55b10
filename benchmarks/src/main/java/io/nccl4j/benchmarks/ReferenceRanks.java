package io.nccl4j.benchmarks;

import com.sun.management.ThreadMXBean;
import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.reference.Algorithm;
import io.nccl4j.reference.ReferenceBackend;
import io.nccl4j.reference.ReferenceOptions;
import io.nccl4j.reference.Transport;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * Measures the reference's all-reduce (float32, sum) in the same way as the C programs in {@code
 * peers}; {@code measure.h} defines the arguments and results. Each rank has a thread that enqueues
 * a batch and waits for its completion. A result has one additional number: the bytes that an
 * operation allocates on the heap, over all ranks.
 *
 * <p>Each process runs operations for some seconds before it measures, so that they are compiled.
 * The number of warm-ups per size is that of the C programs.
 */
public final class ReferenceRanks {
  private static final double COMPILING_SECONDS = 3;
  private static final List<Sizing> COMPILED =
      List.of(
          new Sizing(1 << 10, 0, 1, 200),
          new Sizing(64 << 10, 0, 1, 50),
          new Sizing(1 << 20, 0, 1, 5));
  private static final int PERIOD = 1021;
  private static final double SECOND = 1e9;
  private static final ThreadMXBean THREADS =
      (ThreadMXBean) ManagementFactory.getPlatformMXBean(java.lang.management.ThreadMXBean.class);

  /** Whether the inputs change between two operations. */
  enum Mode {
    UNTOUCHED,
    REWRITTEN;

    @Override
    public String toString() {
      return name().toLowerCase(Locale.ROOT);
    }
  }

  private final RankClock clock;
  private final Buffer source;
  private final Buffer send;
  private final Buffer recv;

  private ReferenceRanks(RankClock clock, long bytes) {
    Communicator communicator = clock.communicator();
    long count = bytes / Float.BYTES;
    this.clock = clock;
    this.source = communicator.newBuffer(DataType.FLOAT32, count);
    this.send = communicator.newBuffer(DataType.FLOAT32, count);
    this.recv = communicator.newBuffer(DataType.FLOAT32, count);
    MemorySegment memory = source.segment();
    for (long i = 0; i < count; i++) {
      float number = (communicator.rank() + 1) * (float) (i % PERIOD);
      memory.setAtIndex(ValueLayout.JAVA_FLOAT, i, number);
    }
  }

  /**
   * Measures with all ranks in this process, or as one of several processes.
   *
   * @param args the number of ranks, the algorithm, the transport or {@code none} for one process;
   *     for several processes this rank and a rendezvous directory; modes, sizes
   */
  public static void main(String[] args) {
    int ranks = Integer.parseInt(args[0]);
    ReferenceOptions options =
        ReferenceOptions.defaults()
            .withAlgorithm(Algorithm.valueOf(args[1].toUpperCase(Locale.ROOT)));
    boolean inProcess = args[2].equals("none");
    List<Mode> modes = new ArrayList<>();
    List<Sizing> sizes = new ArrayList<>();
    for (String argument : List.of(args).subList(inProcess ? 3 : 5, args.length)) {
      if (Character.isDigit(argument.charAt(0))) {
        sizes.add(Sizing.parse(argument));
      } else {
        modes.add(Mode.valueOf(argument.toUpperCase(Locale.ROOT)));
      }
    }
    if (inProcess) {
      try (Backend backend = ReferenceBackend.open(ranks, options)) {
        backend.runRanks(ranks, communicator -> measure(communicator, modes, sizes));
      }
      return;
    }
    int rank = Integer.parseInt(args[3]);
    Transport transport = Transport.valueOf(args[2].toUpperCase(Locale.ROOT));
    try (Backend backend = ReferenceBackend.open(ranks, options.withTransport(transport));
        Rendezvous rendezvous =
            Rendezvous.files(Path.of(args[4]), RankInfo.of(rank, ranks).withLocalRank(rank));
        Communicator communicator = rendezvous.newCommunicator(backend)) {
      measure(communicator, modes, sizes);
    }
  }

  private static void measure(Communicator communicator, List<Mode> modes, List<Sizing> sizes) {
    long most = sizes.stream().mapToLong(Sizing::bytes).max().orElseThrow();
    try (RankClock clock = new RankClock(communicator)) {
      ReferenceRanks rank = new ReferenceRanks(clock, Math.max(most, COMPILED.getLast().bytes()));
      rank.compile(modes);
      for (Sizing size : sizes) {
        modes.forEach(mode -> rank.measure(size, mode));
      }
      clock.maxOverRanks(0);
      List.of(rank.source, rank.send, rank.recv).forEach(Buffer::close);
    }
  }

  private void compile(List<Mode> modes) {
    long start = System.nanoTime();
    while (clock.maxOverRanks((System.nanoTime() - start) / SECOND) < COMPILING_SECONDS) {
      for (Sizing size : COMPILED) {
        RankBody work = new RankBody(size);
        modes.forEach(work::batch);
      }
    }
  }

  private void measure(Sizing size, Mode mode) {
    RankBody work = new RankBody(size);
    work.check();
    work.warmUp();
    double[] taken = new double[size.batches()];
    double[] copying = new double[size.batches()];
    double[] allocated = new double[size.batches()];
    for (int i = 0; i < size.batches(); i++) {
      long before = THREADS.getTotalThreadAllocatedBytes();
      taken[i] = work.batch(mode);
      allocated[i] = THREADS.getTotalThreadAllocatedBytes() - before;
      copying[i] = mode == Mode.REWRITTEN ? work.copies() : 0;
    }
    if (clock.communicator().rank() == 0) {
      System.out.printf(
          Locale.ROOT,
          "%d %s %.4f %.1f%n",
          size.bytes(),
          mode,
          Report.median(taken) - Report.median(copying),
          Report.median(allocated) / size.operations());
    }
  }

  /** The operations of one size. */
  private final class RankBody {
    private final Sizing size;
    private final Buffer source;
    private final Buffer send;
    private final Buffer recv;

    RankBody(Sizing size) {
      long count = size.bytes() / Float.BYTES;
      this.size = size;
      this.source = ReferenceRanks.this.source.slice(0, count);
      this.send = ReferenceRanks.this.send.slice(0, count);
      this.recv = ReferenceRanks.this.recv.slice(0, count);
    }

    private void copy() {
      send.copyFromAsync(source, clock.stream());
    }

    private void reduce() {
      clock.communicator().allReduce(send, recv, ReduceOp.SUM, clock.stream());
    }

    private void copyAndReduce() {
      copy();
      reduce();
    }

    void warmUp() {
      for (int i = 0; i < size.warmUps(); i++) {
        reduce();
      }
    }

    double batch(Mode mode) {
      return clock.time(
          size.operations(), mode == Mode.REWRITTEN ? this::copyAndReduce : this::reduce);
    }

    double copies() {
      return clock.time(size.operations(), this::copy);
    }

    /** Checks one result. The inputs are small integers, whose sum is exact in any order. */
    void check() {
      copy();
      recv.fill((byte) -1, clock.stream());
      reduce();
      clock.stream().synchronize();
      Communicator communicator = clock.communicator();
      int factor = communicator.size() * (communicator.size() + 1) / 2;
      MemorySegment memory = recv.segment();
      for (long i = 0; i < recv.count(); i++) {
        float found = memory.getAtIndex(ValueLayout.JAVA_FLOAT, i);
        float sum = factor * (float) (i % PERIOD);
        if (found != sum) {
          throw new IllegalStateException(
              "rank %d has %s at %d of %d; the sum is %s"
                  .formatted(communicator.rank(), found, i, recv.count(), sum));
        }
      }
    }
  }
}
