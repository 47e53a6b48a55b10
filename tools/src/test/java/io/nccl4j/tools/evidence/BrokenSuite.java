package io.nccl4j.tools.evidence;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.MethodOrderer;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestMethodOrder;

/** A replacement for the contract suite, with topics that kill their process, fail, and pass. */
class BrokenSuite {
  /** Kills its process with a signal. */
  @Nested
  @TestMethodOrder(MethodOrderer.MethodName.class)
  class Collectives {
    @Test
    void aPasses() {
      assertEquals(2, 1 + 1);
    }

    @Test
    void bKillsItsProcess() {
      Runtime.getRuntime().halt(128 + 11);
    }
  }

  /** Fails. */
  @Nested
  @TestMethodOrder(MethodOrderer.MethodName.class)
  class Groups {
    @Test
    void aFails() {
      assertEquals(3, 1 + 1);
    }

    @Test
    void bPasses() {
      assertEquals(2, 1 + 1);
    }
  }

  /** Passes. */
  @Nested
  class PointToPoint {
    @Test
    void passes() {
      assertEquals(2, 1 + 1);
    }
  }
}
