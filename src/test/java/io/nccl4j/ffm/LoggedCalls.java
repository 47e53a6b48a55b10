package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.fixtures.libraries.Requirement;
import io.nccl4j.fixtures.programs.FinishedProgram;
import io.nccl4j.internal.ffm.NativeEnvironment;
import io.nccl4j.internal.ffm.NativeLibrary;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** A program whose calls NCCL logs. NCCL opens its log once, so each test needs a process. */
public final class LoggedCalls {
  private LoggedCalls() {}

  /**
   * Makes a call that NCCL refuses; prints what nccl4j logs, the variables that NCCL has read, and
   * the result.
   *
   * @param arguments a libnccl that other code loads before nccl4j, or nothing
   */
  @SuppressWarnings("restricted") // The other code.
  public static void main(String[] arguments) {
    if (arguments.length > 0) {
      SymbolLookup.libraryLookup(Path.of(arguments[0]), Arena.global());
    }
    try {
      NativeLibrary.NCCL.load();
      print("NCCL_DEBUG");
      print("NCCL_DEBUG_FILE");
      System.out.println("result " + nccl_h.ncclGetUniqueId(MemorySegment.NULL));
    } catch (IllegalArgumentException refused) {
      System.out.println(refused.getMessage());
    }
  }

  private static void print(String variable) {
    Optional<String> value = NativeEnvironment.get(variable);
    System.out.println(variable + " is " + value.orElse("not set"));
  }

  /**
   * Runs the program; returns the lines that it printed, those of nccl4j's log with level and
   * logger.
   *
   * @param folder for its temporary files, which must all be gone at its end
   */
  static List<String> run(
      Path folder, Map<String, String> environment, String option, String... arguments)
      throws IOException, InterruptedException {
    Path settings =
        Files.writeString(
            folder.resolve("log4j2.properties"),
            """
            appender.out.type = Console
            appender.out.name = out
            appender.out.layout.type = PatternLayout
            appender.out.layout.pattern = %p %c: %m%n
            rootLogger.level = debug
            rootLogger.appenderRef.out.ref = out
            """);
    Path temporary = Files.createDirectory(folder.resolve("temporary"));
    List<String> command =
        new ArrayList<>(
            FinishedProgram.java(
                option,
                "-Dio.nccl4j.nccl.library=" + Requirement.library("nccl"),
                "-Djava.io.tmpdir=" + temporary,
                "-Dlog4j2.configurationFile=" + settings,
                // The last lines are logged while the process ends.
                "-Dlog4j.shutdownHookEnabled=false",
                LoggedCalls.class.getName()));
    command.addAll(List.of(arguments));
    FinishedProgram ended = FinishedProgram.run(environment, command);
    assertEquals(0, ended.status(), ended.output());
    try (var left = Files.list(temporary)) {
      assertEquals(List.of(), left.toList());
    }
    return ended.out().lines().toList();
  }
}
