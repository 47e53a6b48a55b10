package io.nccl4j.examples.simulate;

import io.nccl4j.examples.plots.Picture;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import picocli.CommandLine;
import picocli.CommandLine.ParameterException;

/** The command: from a command line to an exit status. */
public final class Simulate {
  /** Predicted. */
  static final int OK = 0;

  /** The plot cannot be written. */
  static final int FAILED = 1;

  /** The command line asks for what cannot be. */
  static final int BAD_ARGUMENTS = 2;

  private final PrintStream out;
  private final PrintStream err;

  /**
   * Makes a command.
   *
   * @param out where the prediction goes
   * @param err where messages go
   */
  Simulate(PrintStream out, PrintStream err) {
    this.out = out;
    this.err = err;
  }

  /** Runs the command and ends the process with its status. */
  public static void main(String[] args) {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    int status = new Simulate(out, System.err).run(args);
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
      simulate(flags);
      return OK;
    } catch (ParameterException | IllegalArgumentException e) {
      err.println("simulate: " + e.getMessage() + "; scripts/simulate --help says what is allowed");
      return BAD_ARGUMENTS;
    } catch (IOException e) {
      err.println("simulate: cannot write " + flags.plot + ": " + e);
      return FAILED;
    }
  }

  private void simulate(Flags flags) throws IOException {
    Scenario scenario = Scenario.of(flags);
    if (flags.plot != null) {
      Picture.write(Plot.of(scenario), flags.plot);
    }
    if (flags.json) {
      out.println(JsonReport.of(scenario));
    } else {
      TextReport.write(scenario, out);
      if (flags.plot != null) {
        out.println(flags.plot);
      }
    }
  }
}
