package io.nccl4j.internal.util;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.programs.FinishedProgram;
import java.io.File;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.logging.log4j.Logger;
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

  /** Logs. */
  public static final class LoggingProgram {
    private LoggingProgram() {}

    /** Logs a warning and an error. */
    public static void main(String[] args) {
      Loggers.of("name").warn("a warning");
      Loggers.of(LoggingProgram.class).error("an error of {}", args[0]);
    }
  }

  /** Without log4j-core, only errors are shown, and none about log4j itself. */
  @Test
  void programWithoutImplementationShowsErrors() throws Exception {
    String path =
        Stream.of(Loggers.class, Logger.class, LoggersTest.class)
            .map(type -> type.getProtectionDomain().getCodeSource().getLocation().getPath())
            .distinct()
            .collect(Collectors.joining(File.pathSeparator));
    FinishedProgram ended =
        FinishedProgram.run(
            Map.of(), FinishedProgram.java("-cp", path, LoggingProgram.class.getName(), "nccl4j"));
    assertEquals("", ended.out());
    assertTrue(ended.err().matches("ERROR LoggingProgram an error of nccl4j\\s*"), ended.err());
  }

  @Test
  void interruptedThreadGetsALogger() throws Exception {
    FinishedProgram ended =
        FinishedProgram.run(Map.of(), FinishedProgram.java(InterruptedProgram.class.getName()));
    assertEquals("found true", ended.out().strip(), ended.err());
  }
}
