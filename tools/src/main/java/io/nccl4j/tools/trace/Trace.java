package io.nccl4j.tools.trace;

import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.JsonTree;
import io.nccl4j.tools.cli.OutputFile;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/** The {@code trace} command. */
public final class Trace {
  private Trace() {}

  /** Runs the command and exits with its status. */
  public static void main(String[] args) {
    Commands.exit((out, err) -> run(out, err, args));
  }

  /** Runs the command and returns its exit status. */
  static int run(PrintStream out, PrintStream err, String... args) {
    Flags flags = new Flags();
    return Commands.of(flags, () -> trace(flags, out, err), out, err).execute(args);
  }

  private static int trace(Flags flags, PrintStream out, PrintStream err) throws IOException {
    Timeline timeline = Timeline.of(read(flags, err));
    if (flags.html != null) {
      OutputFile.write(flags.html, HtmlPage.of(timeline));
    }
    if (flags.output != null) {
      OutputFile.write(flags.output, writer -> JsonTree.write(writer, ChromeTrace.of(timeline)));
    }
    Summary.write(timeline, out);
    return Commands.OK;
  }

  /** Reads the recordings; ignores those without nccl4j events, such as that of a launcher. */
  private static List<RecordingReader> read(Flags flags, PrintStream err) throws IOException {
    List<RecordingReader> readers = new ArrayList<>();
    Set<String> unseen = new LinkedHashSet<>(flags.others);
    for (Path recording : new LinkedHashSet<>(flags.recordings)) {
      RecordingReader reader = RecordingReader.of(recording, flags.others);
      unseen.removeAll(reader.types());
      if (!reader.empty()) {
        readers.add(reader);
      } else if (flags.recordings.size() > 1) {
        err.println("trace: " + recording + " has no nccl4j events and is ignored");
      }
    }
    if (readers.isEmpty()) {
      throw new IOException(
          flags.recordings.getFirst()
              + " has no nccl4j events: the program did not use nccl4j, or its events were"
              + " disabled");
    }
    if (!unseen.isEmpty()) {
      throw new IllegalArgumentException(
          "--with: no recording has an event " + String.join(" or ", unseen));
    }
    return readers;
  }
}
