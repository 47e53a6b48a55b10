package io.nccl4j.tools.evidence;

import io.nccl4j.tools.cli.JsonTree;
import io.nccl4j.tools.cli.OutputFile;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/**
 * The results of one process of a step, which it writes for the process that started it.
 *
 * @param verdict whether it passed
 * @param summary the result in one line
 * @param facts versions, devices and other properties, by name
 * @param tables measurements and comparisons
 * @param notes remarks for the reader
 */
record Report(
    Verdict verdict,
    String summary,
    Map<String, String> facts,
    List<Table> tables,
    List<String> notes) {
  /** Whether a process passed. */
  enum Verdict {
    PASSED,
    FAILED,
    /** Not possible on this machine; the summary gives the reason. */
    NOT_POSSIBLE,
    /** Not finished; the report has the results so far. */
    UNFINISHED
  }

  static Report of(Verdict verdict, String summary) {
    return new Report(verdict, summary, Map.of(), List.of(), List.of());
  }

  /** Replaces the file atomically. */
  void write(Path file) throws IOException {
    Object tree =
        JsonTree.object(
            "verdict", verdict.name(),
            "summary", summary,
            "facts", facts,
            "tables", tables.stream().map(Table::tree).toList(),
            "notes", notes);
    OutputFile.replace(file, JsonTree.text(tree) + "\n");
  }

  /**
   * Reads a report written by {@link #write}.
   *
   * @throws IOException if it cannot be read or is not a report
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
      // A missing field, or one of another type, causes one of several exceptions.
      throw new IOException(file + " is not the report of a step: " + e.getMessage(), e);
    }
  }
}
