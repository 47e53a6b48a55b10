package io.nccl4j.tools.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Callable;
import org.junit.jupiter.api.Test;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** Help, messages and exit statuses of commands. */
class CommandsTest {
  @Command(
      name = "count",
      sortOptions = false,
      usageHelpWidth = 100,
      customSynopsis = "scripts/count [--of N]",
      header = "Counts.",
      footer = "Exit status: 0 counted.")
  private static final class Flags {
    @Option(names = "--of", paramLabel = "N", description = "how many")
    int of;
  }

  private final ByteArrayOutputStream out = new ByteArrayOutputStream();
  private final ByteArrayOutputStream err = new ByteArrayOutputStream();

  private int run(Flags flags, Callable<Integer> action, String... args) {
    return Commands.of(flags, action, stream(out), stream(err)).execute(args);
  }

  private int run(Callable<Integer> action, String... args) {
    return run(new Flags(), action, args);
  }

  private static PrintStream stream(ByteArrayOutputStream bytes) {
    return new PrintStream(bytes, false, StandardCharsets.UTF_8);
  }

  private static String text(ByteArrayOutputStream bytes) {
    return bytes.toString(StandardCharsets.UTF_8);
  }

  @Test
  void actionReadsFlagsAndReturnsStatus() {
    Flags flags = new Flags();
    assertEquals(7, run(flags, () -> flags.of, "--of", "7"));
    assertEquals("", text(out) + text(err));
  }

  @Test
  void helpIsPrintedWithoutRunningAction() {
    for (String help : new String[] {"-h", "--help"}) {
      out.reset();
      assertEquals(Commands.OK, run(() -> 7, help));
      assertEquals(
          """
          Counts.
          Usage: scripts/count [--of N]
                --of=N   how many
            -h, --help   print this help
          Exit status: 0 counted.
          """,
          text(out));
    }
    assertEquals("", text(err));
  }

  @Test
  void invalidArgumentsAreReportedInOneLine() {
    assertEquals(Commands.BAD_ARGUMENTS, run(() -> 7, "--off"));
    assertEquals("count: Unknown option: '--off'; see --help\n", text(err));
  }

  @Test
  void argumentsRefusedByActionAreReportedInOneLine() {
    Callable<Integer> refusing =
        () -> {
          throw new IllegalArgumentException("--of is 7; it must be 8");
        };
    assertEquals(Commands.BAD_ARGUMENTS, run(refusing));
    assertEquals("count: --of is 7; it must be 8; see --help\n", text(err));
  }

  @Test
  void failurePrintsItsMessage() {
    Callable<Integer> unreadable =
        () -> {
          throw new IOException("a.json: there is no such file");
        };
    assertEquals(Commands.FAILED, run(unreadable));
    Callable<Integer> ending =
        () -> {
          throw new IllegalStateException("this process is ending");
        };
    assertEquals(Commands.FAILED, run(ending));
    assertEquals(
        "count: a.json: there is no such file\ncount: this process is ending\n", text(err));
  }

  @Test
  void unwritableOutputIsFailure() {
    OutputStream full =
        new OutputStream() {
          @Override
          public void write(int b) throws IOException {
            throw new IOException("No space left on device");
          }
        };
    for (String[] args : new String[][] {{"--of", "7"}, {"--help"}}) {
      err.reset();
      PrintStream nowhere = new PrintStream(full, false, StandardCharsets.UTF_8);
      Callable<Integer> printing =
          () -> {
            nowhere.println("7");
            return Commands.OK;
          };
      assertEquals(
          Commands.FAILED, Commands.of(new Flags(), printing, nowhere, stream(err)).execute(args));
      assertEquals(
          "count: cannot write to stdout; its device is full or its reader has exited\n",
          text(err));
    }
  }

  @Test
  void bugPrintsStackTrace() {
    Callable<Integer> wrong =
        () -> {
          throw new ArithmeticException("by zero");
        };
    assertEquals(Commands.FAILED, run(wrong));
    assertTrue(text(err).contains("ArithmeticException: by zero\n\tat "), text(err));
  }
}
