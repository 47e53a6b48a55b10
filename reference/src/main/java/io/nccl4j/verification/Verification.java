package io.nccl4j.verification;

import io.nccl4j.Communicator;
import io.nccl4j.NcclException;
import io.nccl4j.internal.schedule.NcclGraph;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.nccl.NcclCommunicator;
import io.nccl4j.spi.Background;
import io.nccl4j.spi.Contract;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/**
 * Checks some results of a communicator of NCCL while the program runs: the ranks compute them
 * again with the reference, from copies of their inputs.
 *
 * {@snippet :
 * Verification.install(); // before the first backend
 * try (Backend backend = Backend.nccl()) {
 *   backend.runRanks(
 *       2,
 *       comm -> {
 *         try (Verification verification = Verification.sampling(comm, 1_000)) {
 *           train(comm);
 *           report(verification.counts());
 *         }
 *       });
 * }
 * }
 *
 * <p>About one in N all-reduces, reduce-scatters and all-gathers is chosen by its number, which is
 * the same on every rank. Its stream copies input and output to pinned memory; the check runs on
 * another thread. Input and output together have at most 16 MiB, and one check is in flight; what
 * is not checked is counted with the {@linkplain SkipReason reason}.
 *
 * <p>Bits are compared if they do not depend on an order, as those of integers, or if the order of
 * NCCL's additions is known: from {@link #install} and from NCCL's log, which must be in a file
 * ({@code NCCL_DEBUG=INFO}, {@code NCCL_DEBUG_SUBSYS=INIT}, {@code NCCL_DEBUG_FILE}). {@code
 * docs/prediction.md} has the conditions. Other sums and averages of floats are compared within a
 * bound for any order, {@code 2 (n + 1) u} times the sum of the magnitudes, for n ranks and the
 * unit roundoff u of the type; the finding has that bound.
 *
 * <p>Findings go to a listener, on the verification's thread; by default they are logged as errors.
 * If a rank does not take part in a check within 30 seconds, verification ends on all ranks with a
 * warning in the log, and the program continues.
 */
@NullMarked
public final class Verification implements AutoCloseable {
  private static final Logger LOG = Loggers.of(Verification.class);
  private static final Duration TIMEOUT = Duration.ofSeconds(30);

  private final Communicator communicator;
  private final Peers peers;
  private final Sampler sampler;
  private final Counters counters;
  private final Duration timeout;
  private final CompletableFuture<Void> checks;
  private boolean closed;

  private Verification(
      Communicator communicator,
      Peers peers,
      Sampler sampler,
      Counters counters,
      Checker checker,
      Duration timeout) {
    this.communicator = communicator;
    this.peers = peers;
    this.sampler = sampler;
    this.counters = counters;
    this.timeout = timeout;
    this.checks =
        Background.<Void>start("nccl4j-verification", () -> run(checker)).toCompletableFuture();
  }

  /**
   * Installs a profiler that reports what NCCL chooses for each collective. Optional: without it,
   * sums of floats are compared within a bound.
   *
   * @throws IllegalStateException as {@link io.nccl4j.plugin.NcclPlugins#addProfiler} does: if NCCL
   *     is loaded already
   */
  public static void install() {
    NcclChoice.install();
  }

  /**
   * Verifies a communicator, and logs findings as errors. Every rank calls it, in its own thread,
   * between the same operations, and children are verified on their own. It is a collective step:
   * the id of a communicator of the reference travels over {@code communicator} by {@link
   * Communicator#broadcastBytes}, and the ranks connect.
   *
   * @param communicator a connected communicator of NCCL
   * @param oneIn how many collectives one is chosen from, the same on every rank; 1 or more
   * @return the verification; the caller closes it, before or after the communicator
   * @throws IllegalArgumentException if {@code communicator} is of another backend, or {@code
   *     oneIn} is less than 1 or not the same on every rank
   * @throws IllegalStateException if the communicator is not open, or verified already
   * @throws NcclException if the ranks cannot connect
   */
  public static Verification sampling(Communicator communicator, int oneIn) {
    return sampling(communicator, oneIn, finding -> LOG.error("{}: {}", communicator, finding));
  }

  /**
   * Verifies a communicator as {@link #sampling(Communicator, int)} does.
   *
   * @param communicator a connected communicator of NCCL
   * @param oneIn how many collectives one is chosen from, the same on every rank; 1 or more
   * @param listener gets the findings about this rank, on the verification's thread. It may take
   *     its time, up to 30 seconds; its exceptions are logged
   * @return the verification; the caller closes it, before or after the communicator
   * @throws IllegalArgumentException if {@code communicator} is of another backend, or {@code
   *     oneIn} is less than 1 or not the same on every rank
   * @throws IllegalStateException if the communicator is not open, or verified already
   * @throws NcclException if the ranks cannot connect
   */
  public static Verification sampling(
      Communicator communicator, int oneIn, Consumer<Finding> listener) {
    return sampling(communicator, oneIn, listener, TIMEOUT);
  }

  /** Verifies with another limit on the time that a rank waits for the others. */
  static Verification sampling(
      Communicator communicator, int oneIn, Consumer<Finding> listener, Duration timeout) {
    NcclCommunicator nccl = NcclCommunicator.of(communicator);
    Arguments.atLeast(oneIn, "oneIn", 1);
    Objects.requireNonNull(listener, "listener");
    long[] address = new long[1];
    nccl.callNative(
        "ncclComm_t",
        handle -> {
          address[0] = handle.address();
          return 0;
        });
    Peers peers = Peers.connect(communicator, "verification", timeout);
    try {
      Counters counters = new Counters();
      // Before the ranks meet: allocating waits for the devices, and so would for operations that
      // another rank calls next.
      Sampler sampler = Sampler.open(communicator, oneIn, counters);
      try {
        checkSame(peers, oneIn);
        List<String> log = peers.gather(NcclGraph.linesOf(NcclOrder.log(), address[0]));
        NcclOrder order = new NcclOrder(log, peers.size());
        Contract.get().listen(communicator, sampler);
        Checker checker =
            new Checker(communicator, sampler, peers, order, counters, listener, timeout);
        return new Verification(communicator, peers, sampler, counters, checker, timeout);
      } catch (Throwable failure) {
        CloseAll.after(failure, sampler::close);
        throw failure;
      }
    } catch (Throwable failure) {
      CloseAll.after(failure, peers::close);
      throw failure;
    }
  }

  private static void checkSame(Peers peers, int oneIn) {
    long[] all = peers.gather(oneIn);
    for (int rank = 0; rank < all.length; rank++) {
      if (all[rank] != oneIn) {
        throw new IllegalArgumentException(
            "oneIn is %d on rank %d and %d on rank %d; it must be the same on every rank"
                .formatted(oneIn, peers.rank(), all[rank], rank));
      }
    }
  }

  private @Nullable Void run(Checker checker) {
    try {
      checker.run();
    } catch (RuntimeException | Error failure) {
      sampler.end();
      // One rank sees that another is late, and the others that the first has ended verification.
      boolean late = failure instanceof NcclException && !communicator.isAborted();
      counters.skipped(late ? SkipReason.LATE : SkipReason.FAILED);
      peers.abort();
      LOG.warn("{}: verification has ended", communicator, failure);
    }
    return null;
  }

  /** {@return what was checked, found and skipped until now} Thread-safe. */
  public VerificationCounts counts() {
    return counters.counts();
  }

  /** Returns whether no check is in flight. */
  boolean idle() {
    return sampler.idle() || checks.isDone();
  }

  /**
   * Finishes the check in flight and ends verification. Every rank calls it, between the same
   * operations; a rank waits for the others for at most 90 seconds. Idempotent.
   */
  @Override
  public void close() {
    if (closed) {
      return;
    }
    closed = true;
    Contract.get().listen(communicator, null);
    sampler.finish();
    if (communicator.isAborted() || !ended(timeout.multipliedBy(2))) {
      peers.abort();
    }
    if (ended(timeout)) {
      CloseAll.all(List.of(peers::close, sampler::close));
    } else {
      // Its memory stays allocated, since the device may still write it.
      LOG.warn("{}: a check did not end in {}", communicator, timeout);
    }
  }

  private boolean ended(Duration limit) {
    return checks
        .thenApply(none -> true)
        .completeOnTimeout(false, limit.toMillis(), TimeUnit.MILLISECONDS)
        .join();
  }
}
