package io.nccl4j;

import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.spi.Awaited;
import io.nccl4j.spi.Background;
import io.nccl4j.spi.FailureDetails;
import java.time.Duration;
import java.util.BitSet;
import java.util.List;
import java.util.Optional;
import org.apache.logging.log4j.Logger;

/**
 * The deadline of calls that were launched together on a stream of a library without deadlines: a
 * warning if the device does not get past them, and later their end.
 */
final class LaunchDeadline {
  // Logs under the name of the public class, which this one does not refer to.
  private static final Logger LOG = Loggers.of("io.nccl4j.Communicator");

  private final List<Call> calls;
  private final Call first;
  private final long number;

  // One thread at a time reports.
  private boolean warned;
  private boolean passed;

  /**
   * Creates the deadline of calls.
   *
   * @param calls at least one
   * @param number the number of the first one in its communicator, or 0
   */
  LaunchDeadline(List<Call> calls, long number) {
    this.calls = calls;
    this.first = calls.getFirst();
    this.number = number;
  }

  /**
   * Warns or ends the calls, if it is time to.
   *
   * @param nanos how long the stream has completed nothing
   */
  void pending(long nanos) {
    if (passed || ended()) {
      return;
    }
    Duration timeout = timeout();
    if (nanos > timeout.toNanos()) {
      start(this::end);
      passed = true;
    } else if (!warned && nanos > Deadline.warning(timeout).toNanos()) {
      Duration duration = Duration.ofNanos(nanos);
      start(() -> LOG.warn("{}", failure(duration).getMessage()));
      warned = true;
    }
  }

  private List<CommunicatorCore> communicators() {
    return calls.stream().map(Call::communicator).distinct().toList();
  }

  /** Returns whether all operations have ended, perhaps because of those on another stream. */
  private boolean ended() {
    return communicators().stream().allMatch(CommunicatorCore::isAborted);
  }

  private Duration timeout() {
    return calls.stream()
        .map(call -> call.communicator().timeout())
        .max(Duration::compareTo)
        .orElseThrow();
  }

  /** Starts work in another thread: asking for the ranks takes a while, and an abort may block. */
  private static void start(Runnable work) {
    Thread.ofPlatform()
        .daemon()
        .inheritInheritableThreadLocals(false)
        .name("nccl4j-deadline")
        .start(work);
  }

  /** Describes calls that the device has not completed within a time. */
  private NcclTimeoutException failure(Duration duration) {
    CommunicatorCore communicator = first.communicator();
    Optional<Awaited> awaited = awaited(communicator);
    String who = awaited.map(Awaited::text).orElse("the device, and with it perhaps other ranks");
    NcclTimeoutException failure = new NcclTimeoutException(first.method(), duration, who);
    BitSet failed = awaited.map(Awaited::failed).orElseGet(BitSet::new);
    BitSet missing = awaited.map(Awaited::ranks).orElseGet(BitSet::new);
    failure.initDetails(
        FailureDetails.of(communicator.toString(), failed, missing)
            .in(first.operation(), first.collective() ? number : 0));
    return failure;
  }

  private Optional<Awaited> awaited(CommunicatorCore communicator) {
    try {
      return communicator.awaited(first.collective() ? number : 0);
    } catch (RuntimeException | Error e) {
      LOG.warn("{}: it is not known which ranks are late", communicator, e);
      return Optional.empty();
    }
  }

  private void end() {
    if (ended()) {
      return;
    }
    NcclTimeoutException failure = failure(timeout());
    if (ended()) {
      return; // by the deadline of another stream, meanwhile
    }
    dump();
    if (!with(TimeoutAction.EXIT).isEmpty()) {
      LOG.fatal("{}; the process ends", failure.getMessage());
      Runtime.getRuntime().halt(1);
    }
    List<CommunicatorCore> aborted = with(TimeoutAction.ABORT);
    LOG.error("{}{}", failure.getMessage(), aborted.isEmpty() ? "" : "; its operations are ended");
    // Together: one alone might wait for the kernels of another.
    Background.runTogether(
        "nccl4j-deadline",
        aborted.stream().<Runnable>map(each -> () -> each.failures().timeOut(failure)).toList());
  }

  private List<CommunicatorCore> with(TimeoutAction action) {
    return communicators().stream()
        .filter(communicator -> communicator.config().timeoutAction() == action)
        .toList();
  }

  private void dump() {
    try {
      communicators().forEach(each -> each.failures().dumpAfterFailure());
    } catch (RuntimeException | Error e) {
      LOG.warn("the records of late operations cannot be written", e);
    }
  }
}
