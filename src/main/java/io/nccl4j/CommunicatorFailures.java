package io.nccl4j;

import io.nccl4j.internal.flight.OperationLog;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.spi.Awaited;
import io.nccl4j.spi.Background;
import io.nccl4j.spi.FailureDetails;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import org.apache.logging.log4j.Logger;

/**
 * The failures of a communicator: what its driver detects, and operations that were late. Records
 * and writes the first of each kind once.
 */
final class CommunicatorFailures {
  // Logs under the name of the public class, which this one does not refer to.
  private static final Logger LOG = Loggers.of("io.nccl4j.Communicator");

  private final CommunicatorCore communicator;
  private final AtomicBoolean reported = new AtomicBoolean();
  // Why the operations were ended, or null.
  private final AtomicReference<NcclTimeoutException> timedOut = new AtomicReference<>();
  // Asked once, after the first remote error, by a thread of its own: one that waits for the answer
  // may be interrupted.
  private final FutureTask<Optional<Awaited>> awaited;
  private final AtomicBoolean asked = new AtomicBoolean();
  private boolean dumpedAfterTimeout;
  private boolean dumpedAfterFailure;

  CommunicatorFailures(CommunicatorCore communicator) {
    this.communicator = communicator;
    this.awaited = new FutureTask<>(communicator::awaited);
  }

  /** Returns the failure that the driver has detected, or empty. */
  Optional<NcclException> failure() {
    Optional<NcclException> found = communicator.driver().asyncError();
    if (found.isPresent()) {
      found.get().initDetails(communicator.details());
      if (reported.compareAndSet(false, true)) {
        CommunicatorEvents.record(communicator, "failure", found.get());
        dumpAfterFailure();
      }
    }
    return found;
  }

  boolean reported() {
    return reported.get();
  }

  /** Logs a failure, unless a call has thrown it. Asks other processes, for a few seconds. */
  void notice() {
    if (!reported() && communicator.isOpen() && !communicator.isAborted()) {
      failure().ifPresent(found -> LOG.warn("{}", named(found).getMessage()));
    }
  }

  /**
   * Returns a remote error with the ranks that are lost or late, if the library tells only that
   * there are some. Asks other processes, for a few seconds, the first time.
   */
  NcclException named(NcclException failure) {
    if (!(failure instanceof NcclRemoteException)
        || !failure.details().equals(communicator.details())) {
      return failure;
    }
    Awaited lost = awaited().orElse(null);
    if (lost == null) {
      return failure;
    }
    String text = failure.text() + "; " + lost.text();
    NcclException named =
        NcclException.of(failure.function(), failure.code(), text, failure.lastError());
    named
        .initDetails(FailureDetails.of(communicator.toString(), lost.failed(), lost.ranks()))
        .initCause(failure);
    return named;
  }

  /** Returns the ranks that were lost when operations failed, as far as the library told. */
  Set<Integer> lostRanks() {
    NcclTimeoutException late = timedOut.get();
    if (late != null && !late.failedRanks().isEmpty()) {
      return late.failedRanks();
    }
    return awaited.isDone()
        ? awaited().stream()
            .flatMap(known -> known.failed().stream().boxed())
            .collect(Collectors.toSet())
        : Set.of();
  }

  private Optional<Awaited> awaited() {
    if (asked.compareAndSet(false, true)) {
      Background.startOrRun("nccl4j-lost-ranks", awaited);
    }
    try {
      return awaited.get();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    } catch (ExecutionException e) {
      LOG.warn("{}: it is not known which ranks are lost", communicator, e.getCause());
    }
    return Optional.empty();
  }

  /**
   * Ends operations that the device has not completed in time: the waits for them throw the given
   * failure. Where the library permits it, the communicator can still be shrunk.
   */
  void timeOut(NcclTimeoutException failure) {
    if (!timedOut.compareAndSet(null, failure)) {
      return; // its operations on another stream were late, too
    }
    Statistics.failed(failure);
    try {
      if (!communicator.driver().revoke()) {
        communicator.abort();
      }
    } catch (RuntimeException e) {
      LOG.warn("{}: its operations could not be ended", communicator, e);
    }
  }

  /** Returns whether every wait throws until the communicator is closed or aborted. */
  boolean keepsFailing() {
    return timedOut.get() != null && communicator.isOpen();
  }

  /** Returns the exception for a wait that ended with the operations. */
  NcclException ended(String function) {
    NcclTimeoutException late = timedOut.get();
    return late == null
        ? new CommunicatorAbortedException(function, communicator.toString())
        : NcclException.copyOf(late, late.details());
  }

  /** Writes the records of operations after the first wait that timed out. */
  void dumpAfterTimeout() {
    OperationLog log = communicator.log();
    synchronized (this) {
      if (log == null || dumpedAfterTimeout || dumpedAfterFailure) {
        return;
      }
      dumpedAfterTimeout = true;
    }
    FlightRecorder.failed(log);
  }

  /** Writes the records of operations after the first failure. */
  void dumpAfterFailure() {
    OperationLog log = communicator.log();
    synchronized (this) {
      if (log == null || dumpedAfterFailure) {
        return;
      }
      dumpedAfterFailure = true;
    }
    FlightRecorder.failed(log);
  }
}
