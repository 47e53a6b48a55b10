package io.nccl4j.internal.reference.collective;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import org.junit.jupiter.api.Test;

/** Tests the synchronization of a direct all-reduce without the all-reduce. */
class DirectSyncTest {
  @Test
  void closeWaitsUntilNoDataIsAccessed() throws InterruptedException {
    DirectSync sync = new DirectSync(2);
    assertTrue(sync.begin());
    Thread closing = new Thread(sync::close);
    closing.start();
    while (sync.begin()) {
      sync.end();
    }
    assertTrue(closing.isAlive(), "closed while a piece was worked on");
    sync.end();
    assertTrue(closing.join(Duration.ofSeconds(30)), "not closed although no data is accessed");
    assertFalse(sync.begin());
  }
}
