package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.Backoff;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.RankSets;
import io.nccl4j.spi.Awaited;
import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.SortedSet;
import java.util.TreeSet;
import org.jspecify.annotations.NullMarked;

/**
 * How the remaining ranks of a communicator continue after others were lost. Immutable.
 *
 * {@snippet :
 * while (true) {
 *   try {
 *     train(comm);
 *     break;
 *   } catch (NcclException failure) {
 *     Communicator broken = comm;
 *     comm = Recovery.defaults().recover(broken, failure); // throws if it cannot continue
 *     broken.abort();
 *   }
 * }
 * }
 *
 * <p>Every surviving rank calls {@link #recover} on the same communicator: the one whose ranks all
 * continue together. If the failed operation was that of a child, that is the parent from which the
 * children are then split again; their ranks, and so {@link NcclException#failedRanks} of their
 * operations, may have other numbers.
 *
 * <p><b>Which ranks are lost.</b> On the reference backend the survivors agree on it: a rank is
 * lost if its process is unreachable or does not answer, if it has closed or aborted the
 * communicator, or if it does not call {@link #recover} within the communicator's timeout. If the
 * others are too few to continue without it, they wait a few timeouts. A rank whose operation
 * failed but which calls {@link #recover} continues. On NCCL the program passes them to {@link
 * #withLostRanks}, the same on every survivor: from its launcher, for example. If it passes none,
 * the ranks are excluded that were named when an operation of the communicator exceeded its timeout
 * or NCCL reported the failure of another process; if none was named, every survivor asks NCCL's
 * RAS service, since NCCL 2.29.2: a rank is lost if its process does not answer, or has closed or
 * aborted the communicator. If survivors exclude different ranks, NCCL does not notice, and all
 * fail when the timeout expires.
 *
 * <p><b>Who may continue.</b> Ranks that cannot reach each other may each take the others for lost.
 * So that only one part continues, it must have more than half of the communicator's ranks, or half
 * of them including rank 0. {@link #withMinority} lifts this rule.
 */
@NullMarked
public final class Recovery {
  /** The duration of all attempts in timeouts of the communicator: some ranks may come late. */
  private static final int TIMEOUTS = 3;

  private static final Recovery DEFAULTS = new Recovery(Set.of(), false);

  private final Set<Integer> lostRanks;
  private final boolean minority;

  private Recovery(Set<Integer> lostRanks, boolean minority) {
    this.lostRanks = lostRanks;
    this.minority = minority;
  }

  /** {@return a recovery in which the backend finds the lost ranks, and a majority continues} */
  public static Recovery defaults() {
    return DEFAULTS;
  }

  /**
   * {@return a copy that also excludes ranks that the program knows to be lost} On NCCL, only
   * these.
   *
   * @param ranks ranks of the communicator that is recovered; copied
   */
  public Recovery withLostRanks(Set<Integer> ranks) {
    return new Recovery(Set.copyOf(ranks), minority);
  }

  /**
   * {@return a copy that permits or forbids the ranks to continue without a majority} Permit it
   * only if nothing else prevents two parts of the job from continuing independently, for example
   * if the launcher has reported the exit of every lost rank.
   *
   * @param permitted whether any number of ranks may continue; by default not
   */
  public Recovery withMinority(boolean permitted) {
    return new Recovery(lostRanks, permitted);
  }

  /**
   * Creates a communicator of the surviving ranks, which keep their order. Aborts the operations of
   * the given one, as {@link ShrinkMode#ABORT_FIRST} does; the caller then aborts it. Waits for the
   * other survivors, at most a few times the timeout of the communicator.
   *
   * @param communicator the communicator to continue from, on every survivor
   * @param failure the failure of one of its operations, or of an operation of a child
   * @return the new communicator, with the same configuration; the caller closes it
   * @throws IllegalArgumentException if a rank of {@link #withLostRanks} is out of range or is this
   *     rank
   * @throws IllegalStateException if the communicator is not open, or in a {@link Group}
   * @throws NcclException if this rank cannot continue: the lost ranks are unknown, the survivors
   *     have no majority or exclude this rank, or the library reports an error; {@code failure} is
   *     its cause or suppressed in it
   * @throws UnsupportedNcclVersionException if the library is too old
   * @throws java.util.concurrent.CancellationException if the waiting thread is interrupted; its
   *     interrupt status stays set
   */
  public Communicator recover(Communicator communicator, NcclException failure) {
    Objects.requireNonNull(failure, "failure");
    for (int rank : lostRanks) {
      Arguments.inRange(rank, "lost rank", 0, communicator.size() - 1);
      if (rank == communicator.rank()) {
        throw new IllegalArgumentException("lost rank is " + rank + ", this rank itself");
      }
    }
    if (Group.running()) {
      throw new IllegalStateException(
          "a recovery waits for other ranks; call it outside the group");
    }
    Optional<Set<Integer>> found = communicator.lostRanks();
    if (found.isEmpty()) {
      return recoverUnreported(communicator, failure);
    }
    Duration timeout = communicator.timeout();
    Backoff backoff = Backoff.betweenLooks(Deadline.after(timeout.multipliedBy(TIMEOUTS)));
    SortedSet<Integer> excluded = union(lostRanks, found.get());
    NcclException last = failure;
    while (true) {
      checkMajority(communicator, excluded, failure, last);
      try {
        return communicator.shrinkAfterFailure(excluded);
      } catch (NcclException e) {
        e.addSuppressed(failure);
        last = e;
        boolean disagreed = e instanceof NcclInvalidUsageException;
        boolean expelled = disagreed && e.failedRanks().contains(communicator.rank());
        if (expelled || e instanceof CommunicatorAbortedException) {
          throw e;
        }
        // Some of the ranks that this rank has excluded have called.
        SortedSet<Integer> lost = union(disagreed ? lostRanks : excluded, e.failedRanks());
        lost.addAll(communicator.lostRanks().orElseThrow());
        lost.remove(communicator.rank());
        SortedSet<Integer> absent = union(lost, e.missingRanks());
        // The others may have given up waiting for this rank, and see now that it has come.
        boolean late = absent.remove(communicator.rank());
        // Ranks that are only late are awaited again where the others are too few without them.
        boolean tooFew = !mayContinue(communicator, absent);
        SortedSet<Integer> next = tooFew || late ? lost : absent;
        boolean mayDiffer = disagreed || late || tooFew || !next.equals(excluded);
        if (!mayDiffer || !pause(backoff)) {
          checkMajority(communicator, absent, failure, last);
          throw e;
        }
        excluded = next;
      }
    }
  }

  /** Recovers on NCCL, whose survivors cannot agree on whom to exclude. */
  private Communicator recoverUnreported(Communicator communicator, NcclException failure) {
    SortedSet<Integer> excluded = new TreeSet<>(lostRanks);
    if (excluded.isEmpty()) {
      // What was known when the operation failed: now others recover, too, and seem to have left.
      excluded.addAll(communicator.ranksLostBefore());
    }
    if (excluded.isEmpty()) {
      Optional<Awaited> awaited = communicator.awaited();
      awaited.ifPresent(known -> excluded.addAll(known.failed().stream().boxed().toList()));
      if (excluded.isEmpty()) {
        throw cannot(
            communicator,
            failure,
            failure,
            "NCCL does not report which ranks are lost"
                + awaited.map(known -> " (" + known.text() + ")").orElse("")
                + "; pass the ranks that the launcher reports to withLostRanks, the same on every"
                + " rank, or abort and start all ranks anew");
      }
    }
    checkMajority(communicator, excluded, failure, failure);
    try {
      return communicator.shrinkAfterFailure(excluded);
    } catch (NcclException e) {
      e.addSuppressed(failure);
      throw e;
    }
  }

  private void checkMajority(
      Communicator communicator, Set<Integer> excluded, NcclException failure, NcclException last) {
    if (!mayContinue(communicator, excluded)) {
      int size = communicator.size();
      throw cannot(
          communicator,
          failure,
          last,
          "%d of %d ranks are left without %s, which is no majority: the other ranks may continue too. Recovery.withMinority(true) continues anyway"
              .formatted(size - excluded.size(), size, RankSets.describe(RankSets.of(excluded))));
    }
  }

  /** Returns whether the ranks that are left are a majority, or need not be one. */
  private boolean mayContinue(Communicator communicator, Set<Integer> excluded) {
    int size = communicator.size();
    int left = size - excluded.size();
    return minority || 2 * left > size || (2 * left == size && !excluded.contains(0));
  }

  /**
   * Returns the exception of a rank that cannot continue.
   *
   * @param last the failure of the last attempt, or {@code failure} if there was none
   */
  private static NcclException cannot(
      Communicator communicator, NcclException failure, NcclException last, String why) {
    String text = why + "; rank " + communicator.rank() + " failed: " + failure.getMessage();
    NcclException thrown = NcclException.of("recover", failure.code(), text, "");
    thrown.initDetails(failure.details()).initCause(failure);
    if (last != failure) {
      thrown.addSuppressed(last);
    }
    return thrown;
  }

  private static SortedSet<Integer> union(Set<Integer> some, Set<Integer> others) {
    SortedSet<Integer> all = new TreeSet<>(some);
    all.addAll(others);
    return all;
  }

  /** Returns false if no time is left. */
  private static boolean pause(Backoff backoff) {
    try {
      return backoff.pause();
    } catch (InterruptedException e) {
      throw Interrupts.cancelled("recover");
    }
  }
}
