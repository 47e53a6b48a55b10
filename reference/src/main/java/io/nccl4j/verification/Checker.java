package io.nccl4j.verification;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CudaException;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import io.nccl4j.internal.schedule.Step;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.reference.ReferenceOptions;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.logging.log4j.Logger;

/**
 * The checks of one rank, on a thread of their own. In each turn all ranks tell each other which
 * collective they have to check. If it is the same one, the reference computes it; else the ranks
 * drop it, and continue with the numbers that none of them had chosen yet.
 */
final class Checker {
  private static final Logger LOG = Loggers.of(Checker.class);

  /** The time for NCCL's report of its choice, which comes from a queue. */
  private static final long CHOICE_SECONDS = 1;

  private static final int SLICE = 1 << 17;
  private static final List<ReduceOp> OPERATORS =
      List.of(ReduceOp.SUM, ReduceOp.PROD, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.AVG);

  private final Communicator communicator;
  private final Sampler sampler;
  private final Peers peers;
  private final NcclOrder order;
  private final Counters counters;
  private final Consumer<Finding> listener;
  private final Duration timeout;

  Checker(
      Communicator communicator,
      Sampler sampler,
      Peers peers,
      NcclOrder order,
      Counters counters,
      Consumer<Finding> listener,
      Duration timeout) {
    this.communicator = communicator;
    this.sampler = sampler;
    this.peers = peers;
    this.order = order;
    this.counters = counters;
    this.listener = listener;
    this.timeout = timeout;
  }

  /** Checks samples until all ranks close their verification; throws if a rank does not answer. */
  void run() {
    boolean more = true;
    while (more) {
      Sample sample = afterDevice(Interrupts.getUninterruptibly(sampler::await));
      if (sampler.rejected()) {
        sampler.release(0);
      } else {
        more = turn(sample);
      }
    }
  }

  /** Waits until the device has copied a sample. */
  private Sample afterDevice(Sample sample) {
    // NCCL ends late operations after its timeout.
    Deadline deadline = Deadline.after(communicator.timeout().plus(timeout));
    Backoff backoff = Backoff.betweenLooks(deadline);
    try {
      while (!sampler.event().isComplete()) {
        if (!Interrupts.getUninterruptibly(backoff::pause)) {
          sampler.keep();
          throw new NcclTimeoutException("verification", deadline.timeout(), "the device");
        }
      }
    } catch (NcclTimeoutException late) {
      throw late;
    } catch (CudaException | NcclException failure) {
      LOG.debug("{}: collective number {} has failed", communicator, sample.number(), failure);
      return sample.skipped(SkipReason.FAILED);
    }
    return communicator.isAborted() ? sample.skipped(SkipReason.FAILED) : sample;
  }

  /** Takes part in a turn; returns whether there are more. */
  private boolean turn(Sample sample) {
    boolean closing = sampler.closing();
    Turn own =
        new Turn(
            sample.number(),
            sampler.latest(),
            closing,
            sample.skip(),
            sample.operation(),
            sample.type(),
            sample.count(),
            sample.operator(),
            sample.skip() == null ? choice(sample) : null);
    List<Turn> turns = Turn.decode(peers.gather(own.encode()));
    if (sample.number() > 0 && turns.stream().allMatch(turn -> turn.number() == own.number())) {
      check(sample, turns);
      sampler.release(sample.number() + 1);
      return true;
    }
    if (sample.number() > 0) {
      counters.skipped(SkipReason.BUSY);
    }
    long latest = turns.stream().mapToLong(Turn::latest).max().orElseThrow();
    sampler.release(latest + 1);
    return !turns.stream().allMatch(Turn::closing);
  }

  private static NcclChoice choice(Sample sample) {
    return sample
        .choice()
        .choice()
        .completeOnTimeout(null, CHOICE_SECONDS, TimeUnit.SECONDS)
        .join();
  }

  private void check(Sample sample, List<Turn> turns) {
    Turn first = turns.getFirst();
    for (int rank = 1; rank < turns.size(); rank++) {
      if (!turns.get(rank).sameCall(first)) {
        report(new Finding.Mismatch(sample.number(), difference(sample, first, rank, turns)));
        return;
      }
    }
    Optional<SkipReason> skip = turns.stream().map(Turn::skip).filter(Objects::nonNull).findFirst();
    if (skip.isPresent()) {
      counters.skipped(skip.get());
      return;
    }
    reportNonFinite(sample);
    boolean agreed = turns.stream().allMatch(turn -> Objects.equals(turn.choice(), first.choice()));
    compare(sample, agreed ? first.choice() : null);
  }

  private static String difference(Sample sample, Turn first, int rank, List<Turn> turns) {
    return "collective number %d differs between ranks: rank 0 called %s, rank %d called %s"
        .formatted(sample.number(), first.describe(), rank, turns.get(rank).describe());
  }

  private void compare(Sample sample, NcclChoice choice) {
    Optional<ReferenceOptions> options =
        order.options(sample.operation(), sample.type(), sample.operator(), sample.count(), choice);
    boolean exact =
        options.isPresent()
            || peers.size() == 1
            || NcclOrder.irrelevant(sample.operation(), sample.type(), sample.operator());
    if (!exact && sample.operator() == ReduceOp.PROD.code()) {
      counters.skipped(SkipReason.OPERATOR);
      return;
    }
    Comparison comparison = new Comparison(sample.type(), sample.output());
    if (exact) {
      compareBits(sample, options.orElse(ReferenceOptions.defaults()), comparison);
    } else {
      compareWithinBound(sample, comparison);
    }
    counters.compared(exact);
    reportDifference(sample, choice, options, comparison);
  }

  private void compareBits(Sample sample, ReferenceOptions options, Comparison comparison) {
    Peers.Link link = peers.link(options);
    Communicator reference = link.communicator();
    DataType type = sample.type();
    try (Buffer input =
            Buffer.ofHostSegment(sample.input(), type, sample.input().byteSize() / type.bytes());
        Buffer expected = reference.newBuffer(type, sample.output().byteSize() / type.bytes())) {
      switch (sample.operation()) {
        case ALL_REDUCE ->
            reference.allReduce(input, expected, OPERATORS.get(sample.operator()), link.stream());
        case REDUCE_SCATTER ->
            reference.reduceScatter(
                input, expected, OPERATORS.get(sample.operator()), link.stream());
        default -> reference.allGather(input, expected, link.stream());
      }
      link.stream().synchronize();
      comparison.compareBits(expected.segment(), sample.operator(), peers.size());
    }
  }

  /** Compares a sum with one in double precision, slice by slice. */
  private void compareWithinBound(Sample sample, Comparison comparison) {
    Peers.Link link = peers.link();
    long count = sample.input().byteSize() / sample.type().bytes();
    boolean scatters = sample.operation() == Operation.REDUCE_SCATTER;
    long begin = scatters ? peers.rank() * sample.count() : 0;
    double divisor = sample.operator() == ReduceOp.AVG.code() ? peers.size() : 1;
    try (Buffer slice = link.communicator().newBuffer(DataType.FLOAT64, 2L * SLICE)) {
      MemorySegment sums = slice.segment();
      for (long from = 0; from < count; from += SLICE) {
        int length = (int) Math.min(SLICE, count - from);
        for (int i = 0; i < length; i++) {
          double value = sample.type().get(sample.input(), from + i);
          DataType.FLOAT64.set(sums, 2L * i, value);
          DataType.FLOAT64.set(sums, 2L * i + 1, Math.abs(value));
        }
        link.communicator().allReduce(slice, slice, ReduceOp.SUM, link.stream());
        link.stream().synchronize();
        for (int i = 0; i < length; i++) {
          long element = from + i - begin;
          if (0 <= element && element < sample.count()) {
            double sum = DataType.FLOAT64.get(sums, 2L * i) / divisor;
            double magnitudes = DataType.FLOAT64.get(sums, 2L * i + 1) / divisor;
            comparison.compareWithinBound(element, sum, magnitudes, peers.size());
          }
        }
      }
    }
  }

  private void reportNonFinite(Sample sample) {
    if (!sample.type().floating()) {
      return;
    }
    long first = -1;
    long elements = 0;
    for (long i = sample.input().byteSize() / sample.type().bytes() - 1; i >= 0; i--) {
      if (!Double.isFinite(sample.type().get(sample.input(), i))) {
        first = i;
        elements++;
      }
    }
    if (elements > 0) {
      double value = sample.type().get(sample.input(), first);
      report(
          new Finding.NonFiniteInput(
              sample.number(), sample.operation(), peers.rank(), first, value, elements));
    }
  }

  private void reportDifference(
      Sample sample, NcclChoice choice, Optional<ReferenceOptions> options, Comparison comparison) {
    long[] wrong = peers.gather(comparison.elements());
    if (comparison.elements() == 0) {
      return;
    }
    SortedSet<Integer> ranks = new TreeSet<>();
    for (int rank = 0; rank < wrong.length; rank++) {
      if (wrong[rank] > 0) {
        ranks.add(rank);
      }
    }
    Optional<Step> step =
        sample.operation() == Operation.ALL_REDUCE && options.isPresent()
            ? order.step(options.get(), sample.count(), sample.type(), comparison.first())
            : Optional.empty();
    report(
        new Finding.Difference(
            sample.number(),
            sample.operation(),
            sample.type(),
            peers.rank(),
            comparison.first(),
            comparison.expected(),
            comparison.actual(),
            comparison.elements(),
            ranks,
            step.map(Step::channel).orElse(-1),
            step.map(Step::chunk).orElse(-1),
            choice == null ? "unknown" : choice.toString(),
            comparison.bound()));
  }

  private void report(Finding finding) {
    counters.found();
    try {
      listener.accept(finding);
    } catch (RuntimeException failure) {
      LOG.error("{}: the listener has failed for: {}", communicator, finding, failure);
    }
  }
}
