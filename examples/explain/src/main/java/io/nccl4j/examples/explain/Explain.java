package io.nccl4j.examples.explain;

import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.List;
import picocli.CommandLine;
import picocli.CommandLine.ParameterException;

/** The command: from a command line to an exit status. */
public final class Explain {
  /** Explained. */
  static final int OK = 0;

  /** The page cannot be written. */
  static final int FAILED = 1;

  /** The command line asks for what cannot be. */
  static final int BAD_ARGUMENTS = 2;

  private final PrintStream out;
  private final PrintStream err;

  /**
   * Makes a command.
   *
   * @param out where the explanation goes
   * @param err where messages go
   */
  Explain(PrintStream out, PrintStream err) {
    this.out = out;
    this.err = err;
  }

  /** Runs the command and ends the process with its status. */
  public static void main(String[] args) {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    int status = new Explain(out, System.err).run(args);
    out.flush();
    System.exit(status);
  }

  /** Runs the command and returns its exit status. */
  int run(String... args) {
    Flags flags = new Flags();
    CommandLine commandLine = new CommandLine(flags);
    try {
      commandLine.parseArgs(args);
      if (flags.help) {
        commandLine.usage(out);
        return OK;
      }
      explain(flags);
      return OK;
    } catch (ParameterException | IllegalArgumentException e) {
      err.println("explain: " + e.getMessage() + "; scripts/explain --help says what is allowed");
      return BAD_ARGUMENTS;
    } catch (IOException e) {
      err.println("explain: cannot write " + flags.html + ": " + e);
      return FAILED;
    }
  }

  private void explain(Flags flags) throws IOException {
    List<Algorithm> algorithms =
        flags.algorithm == null ? List.of(Algorithm.values()) : List.of(flags.algorithm);
    List<Telling> tellings =
        algorithms.stream().map(algorithm -> Telling.of(algorithm, flags)).toList();
    if (flags.html != null) {
      Files.writeString(flags.html, HtmlPage.of(tellings));
      out.println(flags.html);
      return;
    }
    for (Telling telling : tellings) {
      TextReport.write(telling, out);
      out.println();
    }
  }
}
