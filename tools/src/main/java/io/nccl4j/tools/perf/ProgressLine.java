package io.nccl4j.tools.perf;

import java.io.Console;
import java.io.PrintStream;
import java.util.Locale;

/** Says on a terminal how far a run has come, once it takes longer than a moment. */
final class ProgressLine {
  private static final long MOMENT_NANOS = 2_000_000_000L;
  private static final String ERASE_LINE = "\r\u001b[K";

  private final PrintStream terminal;
  private final long rows;
  private final long start = System.nanoTime();
  private long done;
  private boolean shown;

  /**
   * Makes a line.
   *
   * @param terminal where it is shown, or null for nowhere
   * @param rows how many rows there will be, or 0 where there is no end
   */
  ProgressLine(PrintStream terminal, long rows) {
    this.terminal = terminal;
    this.rows = rows;
  }

  /** Returns whether a person is watching. */
  // Since JDK 25 it is null again where there is no terminal, as it was before JDK 22.
  @SuppressWarnings("SystemConsoleNull")
  static boolean onTerminal() {
    Console console = System.console();
    return console != null && console.isTerminal();
  }

  /** Takes the line away, for a row to be printed in its place. */
  void erase() {
    if (shown) {
      terminal.print(ERASE_LINE);
      terminal.flush();
      shown = false;
    }
  }

  /** Shows that one more row is done. */
  void rowDone() {
    done++;
    long nanos = System.nanoTime() - start;
    if (terminal == null || nanos < MOMENT_NANOS || done == rows) {
      return;
    }
    String all = rows == 0 ? "" : " of " + rows;
    terminal.printf(Locale.ROOT, "%srow %d%s, %.0f s ...", ERASE_LINE, done + 1, all, nanos / 1e9);
    terminal.flush();
    shown = true;
  }
}
