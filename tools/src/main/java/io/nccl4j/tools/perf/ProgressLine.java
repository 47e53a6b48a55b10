package io.nccl4j.tools.perf;

import java.io.PrintStream;
import java.util.Locale;

/** Shows the progress of a run on a terminal, after its first two seconds. */
final class ProgressLine {
  private static final long DELAY_NANOS = 2_000_000_000L;
  private static final String ERASE_LINE = "\r\u001b[K";

  private final PrintStream terminal;
  private final long rows;
  private final long start = System.nanoTime();
  private long done;
  private boolean shown;

  /**
   * Creates a progress line.
   *
   * @param terminal the terminal, or null to show nothing
   * @param rows the number of rows, or 0 if it is unlimited
   */
  ProgressLine(PrintStream terminal, long rows) {
    this.terminal = terminal;
    this.rows = rows;
  }

  /** Erases the line, so that a row can be printed in its place. */
  void erase() {
    if (shown) {
      terminal.print(ERASE_LINE);
      terminal.flush();
      shown = false;
    }
  }

  /** Counts one more row and updates the line. */
  void rowDone() {
    done++;
    long nanos = System.nanoTime() - start;
    if (terminal == null || nanos < DELAY_NANOS || done == rows) {
      return;
    }
    String all = rows == 0 ? "" : " of " + rows;
    terminal.printf(Locale.ROOT, "%srow %d%s, %.0f s ...", ERASE_LINE, done + 1, all, nanos / 1e9);
    terminal.flush();
    shown = true;
  }
}
