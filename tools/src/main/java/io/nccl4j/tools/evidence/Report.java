package io.nccl4j.tools.evidence;

import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * What the program of a step found out, for the process that started it.
 *
 * @param verdict whether all was well
 * @param summary the result in one line
 * @param facts what was used, by name
 * @param tables what was measured or compared
 * @param notes what a reader must know of it
 */
record Report(
    Verdict verdict,
    String summary,
    Map<String, String> facts,
    List<Table> tables,
    List<String> notes) {
  /** Whether all was well. */
  enum Verdict {
    PASSED,
    FAILED,
    /** This machine cannot do it; the summary says why. */
    NOT_POSSIBLE,
    /** As far as it had come when it was stopped. */
    UNFINISHED
  }

  static Report of(Verdict verdict, String summary) {
    return new Report(verdict, summary, Map.of(), List.of(), List.of());
  }

  Report with(Verdict newVerdict, String newSummary, List<String> moreNotes) {
    List<String> all = new ArrayList<>(notes);
    all.addAll(moreNotes);
    return new Report(newVerdict, newSummary, facts, tables, all);
  }

  /** Writes the file anew as a whole, so that a reader never sees half of it. */
  void write(Path file) throws IOException {
    Object tree =
        JsonTree.object(
            "verdict", verdict.name(),
            "summary", summary,
            "facts", facts,
            "tables", tables.stream().map(Table::tree).toList(),
            "notes", notes);
    Path aside = file.resolveSibling(file.getFileName() + ".tmp");
    Files.writeString(aside, JsonTree.text(tree) + "\n");
    Files.move(aside, file, StandardCopyOption.ATOMIC_MOVE);
  }

  /**
   * Reads what {@link #write} has written.
   *
   * @throws IOException if it cannot be read, or is something else
   */
  @SuppressWarnings("unchecked") // The other side of write().
  static Report read(Path file) throws IOException {
    Object tree = JsonTree.parse(Files.readString(file));
    try {
      Map<String, Object> fields = (Map<String, Object>) tree;
      return new Report(
          Verdict.valueOf((String) fields.get("verdict")),
          (String) fields.get("summary"),
          (Map<String, String>) fields.get("facts"),
          ((List<Map<String, Object>>) fields.get("tables")).stream().map(Table::of).toList(),
          (List<String>) fields.get("notes"));
    } catch (RuntimeException e) {
      // A field that is missing or of another kind comes out as one of several.
      throw new IOException(file + " is no report of a step: " + e.getMessage(), e);
    }
  }
}
