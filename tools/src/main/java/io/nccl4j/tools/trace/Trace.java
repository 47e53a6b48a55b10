package io.nccl4j.tools.trace;

import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.OutputFile;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/** The command: from a command line to an exit status. */
public final class Trace {
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
    Commands.exit((out, err) -> new Trace(out, err).run(args));
  }

  /** Runs the command and returns its exit status. */
  int run(String... args) {
    Flags flags = new Flags();
    return Commands.of(flags, () -> trace(flags), out, err).execute(args);
  }

  private int trace(Flags flags) throws IOException {
    Timeline timeline = Timeline.of(read(flags));
    if (flags.html != null) {
      OutputFile.write(flags.html, HtmlPage.of(timeline));
    }
    if (flags.output != null) {
      OutputFile.write(flags.output, writer -> ChromeTrace.write(timeline, writer));
    }
    Summary.write(timeline, out);
    return Commands.OK;
  }

  /** Reads what has anything of nccl4j in it; one file that has not may be a launcher's. */
  private List<RecordingReader> read(Flags flags) throws BadRecordingException {
    List<RecordingReader> readings = new ArrayList<>();
    Set<String> unseen = new LinkedHashSet<>(flags.others);
    for (Path recording : new LinkedHashSet<>(flags.recordings)) {
      RecordingReader reading = RecordingReader.of(recording, flags.others);
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
