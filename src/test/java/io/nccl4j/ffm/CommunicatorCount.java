package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.fixtures.libraries.StandIn;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Resets the stand-in around each test, and checks that the test freed its communicators. */
final class CommunicatorCount implements BeforeEachCallback, AfterEachCallback {
  private static final long TIMEOUT_NANOS = 20_000_000_000L;

  private long before;

  @Override
  public void beforeEach(ExtensionContext context) {
    StandIn.reset();
    before = StandIn.live("communicator");
  }

  @Override
  public void afterEach(ExtensionContext context) {
    StandIn.reset();
    // The thread of a call that timed out frees the communicator when it returns.
    long start = System.nanoTime();
    while (live() != 0 && System.nanoTime() - start < TIMEOUT_NANOS) {
      LockSupport.parkNanos(1_000_000);
    }
    assertEquals(0, live(), "communicators that were not freed");
  }

  /** Returns the number of this test's communicators that have not been freed. */
  long live() {
    return StandIn.live("communicator") - before;
  }
}
