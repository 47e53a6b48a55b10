package io.nccl4j.internal.reference.collective;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.MemorySegment;
import java.time.Duration;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Test;

/** Tests the synchronization of a direct all-reduce without the all-reduce. */
class DirectSyncTest {
  private static final int PIECES = Integer.MAX_VALUE;
  private static final long NUMBER = 1;

  private static DirectSync syncOfOneRank() {
    DirectSync sync = new DirectSync(1);
    sync.arrive(0, NUMBER, 0, MemorySegment.NULL, MemorySegment.NULL, 0);
    return sync;
  }

  /**
   * Pieces that are claimed and given up in the meantime do not prove that an earlier piece is
   * finished, although counts that are read in the wrong order would suggest it.
   */
  @RepeatedTest(20)
  void closeWaitsForEarlierPieceDespiteLaterClaims() throws InterruptedException {
    DirectSync sync = syncOfOneRank();
    assertEquals(0, sync.claim(0, 0, PIECES));
    Thread closing = new Thread(sync::close);
    closing.start();
    while (!sync.closed()) {
      Thread.onSpinWait();
    }
    for (int piece = 1; piece <= 300_000; piece++) {
      assertEquals(piece, sync.claim(0, 0, PIECES));
      sync.finish(0, 1);
      assertTrue(closing.isAlive(), "closed while piece 0 was worked on, after " + piece);
    }
    sync.finish(0, 1);
    assertTrue(closing.join(Duration.ofSeconds(30)), "not closed although all pieces are finished");
  }

  @Test
  void claimForPastTransferFails() {
    DirectSync sync = syncOfOneRank();
    assertEquals(0, sync.claim(0, 0, 2));
    assertFalse(sync.finished(0, 0, 1));
    sync.finish(0, 1);
    assertTrue(sync.finished(0, 0, 1));
    assertEquals(1, sync.claim(0, 0, 2));
    sync.finish(0, 1);
    sync.arrive(0, NUMBER + 1, 0, MemorySegment.NULL, MemorySegment.NULL, 0);
    assertEquals(-1, sync.claim(0, 0, 2));
    assertTrue(sync.finished(0, 0, 2));
    assertFalse(sync.finished(0, 2, 1));
    assertEquals(0, sync.claim(0, 2, 1));
    assertEquals(-1, sync.claim(0, 2, 1));
  }
}
