package io.nccl4j.internal.util;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.ChildJvm;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The first look-up of a logger in a process. */
class LoggersTest {
  /** Looks up a logger in a thread that is interrupted. */
  public static final class InterruptedProgram {
    private InterruptedProgram() {}

    /** Prints the logger's name, and whether the thread is still interrupted. */
    public static void main(String[] args) {
      Thread.currentThread().interrupt();
      System.out.println(Loggers.of("found").getName() + " " + Thread.interrupted());
    }
  }

  @Test
  void interruptedThreadGetsALogger() throws Exception {
    assertEquals("found true", ChildJvm.run(InterruptedProgram.class, List.of()).strip());
  }
}
