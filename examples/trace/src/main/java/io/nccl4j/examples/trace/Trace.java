package io.nccl4j.examples.trace;

import java.io.IOException;
import java.io.PrintStream;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import picocli.CommandLine;
import picocli.CommandLine.ParameterException;

/** The command: from a command line to an exit status. */
public final class Trace {
  /** Done. */
  static final int OK = 0;

  /** A recording cannot be read, or a file not be written. */
  static final int FAILED = 1;

  /** The command line asks for what cannot be. */
  static final int BAD_ARGUMENTS = 2;

  private final PrintStream out;
  private final PrintStream err;

  /**
   * Makes a command.
   *
   * @param out where the summary goes
   * @param err where messages go
   */
  Trace(PrintStream out, PrintStream err) {
    this.out = out;
    this.err = err;
  }

  /** Runs the command and ends the process with its status. */
  public static void main(String[] args) {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    int status = new Trace(out, System.err).run(args);
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
      trace(flags);
      return OK;
    } catch (ParameterException | IllegalArgumentException e) {
      err.println("trace: " + e.getMessage() + "; scripts/trace --help says what is allowed");
      return BAD_ARGUMENTS;
    } catch (BadRecordingException e) {
      err.println("trace: " + e.getMessage());
      return FAILED;
    } catch (IOException e) {
      err.println("trace: cannot write: " + e);
      return FAILED;
    }
  }

  private void trace(Flags flags) throws BadRecordingException, IOException {
    Timeline timeline = Timeline.of(read(flags));
    if (flags.html != null) {
      Files.writeString(flags.html, HtmlPage.of(timeline));
    }
    if (flags.output != null) {
      try (Writer writer = Files.newBufferedWriter(flags.output)) {
        ChromeTrace.write(timeline, writer);
      }
    }
    Summary.write(timeline, out);
  }

  /** Reads what has anything of nccl4j in it; one file that has not may be a launcher's. */
  private List<Reading> read(Flags flags) throws BadRecordingException {
    List<Reading> readings = new ArrayList<>();
    Set<String> unseen = new LinkedHashSet<>(flags.others);
    for (Path recording : new LinkedHashSet<>(flags.recordings)) {
      Reading reading = Reading.of(recording, flags.others);
      unseen.removeAll(reading.types());
      if (!reading.empty()) {
        readings.add(reading);
      } else if (flags.recordings.size() > 1) {
        err.println("trace: " + recording + " has no event of nccl4j and is left out");
      }
    }
    if (readings.isEmpty()) {
      throw new BadRecordingException(
          flags.recordings.getFirst()
              + " has no event of nccl4j: either the program did nothing with it, or its events"
              + " were disabled");
    }
    if (!unseen.isEmpty()) {
      throw new IllegalArgumentException(
          "--with: no recording has an event " + String.join(" or ", unseen));
    }
    return readings;
  }
}
