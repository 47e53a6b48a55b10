package io.nccl4j.tools.simulate;

import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.OutputFile;
import java.io.IOException;
import java.io.PrintStream;

/** The {@code simulate} command. */
public final class Simulate {
  private final PrintStream out;
  private final PrintStream err;

  /**
   * Creates the command.
   *
   * @param out receives the prediction
   * @param err receives messages
   */
  Simulate(PrintStream out, PrintStream err) {
    this.out = out;
    this.err = err;
  }

  /** Runs the command and exits with its status. */
  public static void main(String[] args) {
    Commands.exit((out, err) -> new Simulate(out, err).run(args));
  }

  /** Runs the command and returns its exit status. */
  int run(String... args) {
    Flags flags = new Flags();
    return Commands.of(flags, () -> simulate(flags), out, err).execute(args);
  }

  private int simulate(Flags flags) throws IOException {
    Scenario scenario = Scenario.of(flags);
    if (flags.html != null) {
      OutputFile.write(flags.html, HtmlPage.of(scenario));
    }
    if (flags.json) {
      out.println(JsonReport.of(scenario));
    } else {
      TextReport.write(scenario, out);
      if (flags.html != null) {
        out.println(flags.html);
      }
    }
    return Commands.OK;
  }
}
