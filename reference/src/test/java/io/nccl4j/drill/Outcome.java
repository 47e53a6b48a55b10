package io.nccl4j.drill;

import io.nccl4j.Communicator;
import io.nccl4j.CudaException;
import io.nccl4j.NcclException;
import io.nccl4j.Operation;
import io.nccl4j.Stream;
import java.time.Duration;
import java.util.Optional;

/**
 * The outcome of a call on one rank.
 *
 * @param text the error with its ranks, operation and sequence number, or another result
 * @param millis the duration of the call in milliseconds
 */
public record Outcome(String text, long millis) {
  /** The text of a call that succeeded with the expected values. */
  public static final String RIGHT = "correct values";

  /**
   * Makes a call and waits for its result. A rank whose own part succeeds although the others fail
   * gets the error from {@link Communicator#asyncError}.
   *
   * @param fails whether to wait for an error
   * @param limit the longest wait for the stream, and then for the error
   */
  public static Outcome of(
      DrillCall call, Communicator comm, Stream stream, boolean fails, Duration limit)
      throws InterruptedException {
    long start = System.nanoTime();
    String text;
    try {
      call.enqueue();
      stream.synchronize(limit);
      text = fails ? awaitAsyncError(comm, limit) : call.hasRightValues() ? RIGHT : "wrong values";
    } catch (NcclException e) {
      text = text(e);
    } catch (CudaException e) {
      // The failure of the communicator that may be the cause is suppressed in it.
      Throwable[] causes = e.getSuppressed();
      boolean known = causes.length > 0 && causes[0] instanceof NcclException;
      text = "CudaException of " + (known ? text((NcclException) causes[0]) : "no communicator");
    }
    return new Outcome(text, (System.nanoTime() - start) / 1_000_000);
  }

  private static String awaitAsyncError(Communicator comm, Duration limit)
      throws InterruptedException {
    long end = System.nanoTime() + limit.toNanos();
    while (System.nanoTime() < end) {
      // The loss of a rank may be known before the operation that failed because of it.
      Optional<NcclException> error = comm.asyncError();
      if (error.isPresent() && error.get().operation().isPresent()) {
        return text(error.get());
      }
      Thread.sleep(5);
    }
    return "no error";
  }

  private static String text(NcclException e) {
    return text(
        e.getClass().getSimpleName(),
        e.failedRanks().toString(),
        e.missingRanks().toString(),
        e.operation().map(Operation::method).orElse("no operation"),
        e.sequenceNumber().orElse(0));
  }

  /** Returns the text of an error. */
  public static String text(
      String error, String failed, String missing, String operation, long sequenceNumber) {
    return error
        + ", failed "
        + failed
        + ", missing "
        + missing
        + ", "
        + operation
        + " "
        + sequenceNumber;
  }
}
