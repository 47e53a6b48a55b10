package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Starts each test with a stand-in that is as it was built, and holds it to giving back every
 * communicator that it made.
 */
final class CommunicatorCount implements BeforeEachCallback, AfterEachCallback {
  private long before;

  @Override
  public void beforeEach(ExtensionContext context) {
    StandIn.reset();
    before = StandIn.live("communicator");
  }

  @Override
  public void afterEach(ExtensionContext context) {
    StandIn.reset();
    assertEquals(0, made(), "everything was given back");
  }

  /** Returns how many of this test's communicators are alive. */
  long made() {
    return StandIn.live("communicator") - before;
  }
}
