package io.nccl4j.internal.util;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.channels.ClosedByInterruptException;
import org.junit.jupiter.api.Test;

class InterruptsTest {
  @Test
  void interruptedWaitIsRepeatedAndKeepsTheInterrupt() {
    int[] waits = {0};
    Thread.currentThread().interrupt();
    String result =
        Interrupts.getUninterruptibly(
            () -> {
              waits[0]++;
              Thread.sleep(1);
              return "done";
            });
    assertEquals("done", result);
    assertEquals(2, waits[0]);
    assertTrue(Thread.interrupted());
  }

  @Test
  void uninterruptedWaitSetsNoInterrupt() {
    Interrupts.awaitUninterruptibly(() -> Thread.sleep(1));
    assertFalse(Thread.interrupted());
  }

  @Test
  void failedWaitThrowsAndKeepsTheInterrupt() {
    IOException failure = new IOException();
    Thread.currentThread().interrupt();
    IOException thrown =
        assertThrows(
            IOException.class,
            () ->
                Interrupts.awaitUninterruptibly(
                    () -> {
                      Thread.sleep(1);
                      throw failure;
                    }));
    assertSame(failure, thrown);
    assertTrue(Thread.interrupted());
  }

  @Test
  void cancelledWaitRestoresTheInterrupt() {
    assertEquals(
        "interrupted while waiting for ncclCommAbort",
        Interrupts.cancelled("ncclCommAbort").getMessage());
    assertTrue(Thread.interrupted());
  }

  @Test
  void interruptedAccessClearsTheInterruptAndKeepsTheCause() {
    ClosedByInterruptException cause = new ClosedByInterruptException();
    Thread.currentThread().interrupt();
    InterruptedException interrupt = Interrupts.during("in file access", cause);
    assertEquals("interrupted in file access", interrupt.getMessage());
    assertSame(cause, interrupt.getCause());
    assertFalse(Thread.interrupted());
  }
}
