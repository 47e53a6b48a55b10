package io.nccl4j.tools.explain;

import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.OutputFile;
import java.io.IOException;
import java.io.PrintStream;
import java.util.List;

/** The {@code explain} command. */
public final class Explain {
  private Explain() {}

  /** Runs the command and exits with its status. */
  public static void main(String[] args) {
    Commands.exit((out, err) -> run(out, err, args));
  }

  /** Runs the command and returns its exit status. */
  static int run(PrintStream out, PrintStream err, String... args) {
    Flags flags = new Flags();
    return Commands.of(flags, () -> explain(flags, out), out, err).execute(args);
  }

  private static int explain(Flags flags, PrintStream out) throws IOException {
    flags.check();
    List<Algorithm> algorithms =
        flags.algorithm == null ? List.of(Algorithm.values()) : List.of(flags.algorithm);
    List<Explanation> explanations =
        algorithms.stream().map(algorithm -> Explanation.of(algorithm, flags)).toList();
    if (flags.html != null) {
      OutputFile.write(flags.html, HtmlPage.of(explanations));
      out.println(flags.html);
      return Commands.OK;
    }
    for (Explanation explanation : explanations) {
      TextReport.write(explanation, out);
      out.println();
    }
    return Commands.OK;
  }
}
