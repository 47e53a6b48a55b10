package io.nccl4j.tools.simulate;

import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.OutputFile;
import java.io.IOException;
import java.io.PrintStream;

/** The {@code simulate} command. */
public final class Simulate {
  private Simulate() {}

  /** Runs the command and exits with its status. */
  public static void main(String[] args) {
    Commands.exit((out, err) -> run(out, err, args));
  }

  /** Runs the command and returns its exit status. */
  static int run(PrintStream out, PrintStream err, String... args) {
    Flags flags = new Flags();
    return Commands.of(flags, () -> simulate(flags, out), out, err).execute(args);
  }

  private static int simulate(Flags flags, PrintStream out) throws IOException {
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
