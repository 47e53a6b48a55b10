package io.nccl4j.drill;

import io.nccl4j.Communicator;
import io.nccl4j.CudaException;
import io.nccl4j.NcclException;
import io.nccl4j.Operation;
import io.nccl4j.Stream;
import java.time.Duration;
import java.util.Optional;

/**
 * How a call has ended on one rank.
 *
 * @param text the error with its ranks, operation and number, or what else has happened
 * @param millis after how long
 */
public record Outcome(String text, long millis) {
  /** What a rank says whose call has succeeded with the values that it must have. */
  public static final String RIGHT = "right values";

  /**
   * Makes a call and waits for its end. A rank whose own part is done, though the others' is not,
   * has its error from {@link Communicator#asyncError}.
   *
   * @param fails whether an error is to be waited for
   * @param limit how long to wait at most for the stream, and then for the error
   */
  public static Outcome of(
      DrillCall call, Communicator comm, Stream stream, boolean fails, Duration limit)
      throws InterruptedException {
    long start = System.nanoTime();
    String text;
    try {
      call.enqueue();
      stream.synchronize(limit);
      text = fails ? toldOf(comm, limit) : call.hasRightValues() ? RIGHT : "wrong values";
    } catch (NcclException e) {
      text = text(e);
    } catch (CudaException e) {
      // A communicator whose failure may be the cause is suppressed in it.
      Throwable[] causes = e.getSuppressed();
      boolean known = causes.length > 0 && causes[0] instanceof NcclException;
      text = "CudaException of " + (known ? text((NcclException) causes[0]) : "no communicator");
    }
    return new Outcome(text, (System.nanoTime() - start) / 1_000_000);
  }

  private static String toldOf(Communicator comm, Duration limit) throws InterruptedException {
    long end = System.nanoTime() + limit.toNanos();
    while (System.nanoTime() < end) {
      // That a rank has gone may be known before the operation that failed of it.
      Optional<NcclException> told = comm.asyncError();
      if (told.isPresent() && told.get().operation().isPresent()) {
        return text(told.get());
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
