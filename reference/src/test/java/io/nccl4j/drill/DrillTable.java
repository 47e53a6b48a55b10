package io.nccl4j.drill;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.Operation;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Predicate;

/** Checks the cells of one drill and writes them to {@code target/hang-drill}. */
public final class DrillTable {
  private final String backend;
  private final List<String> rows = new ArrayList<>();
  private final Set<String> cells = new HashSet<>();
  private final List<String> wrong = new ArrayList<>();

  /** Starts the table of one backend and transport. */
  public DrillTable(String backend) {
    this.backend = backend;
    rows.add("| backend | collective | fault of rank 2 | rank | outcome | ms | note |");
    rows.add("|---|---|---|---|---|---|---|");
  }

  /**
   * Adds the outcome of a cell on one rank.
   *
   * @param note a remark on the cell
   * @param expected tests the text of the outcome
   * @param least the shortest permitted time in milliseconds
   * @param most the longest permitted time in milliseconds
   */
  public void add(
      Operation operation,
      DrillFault fault,
      int rank,
      Outcome outcome,
      String note,
      Predicate<String> expected,
      long least,
      long most) {
    cells.add(operation + " " + fault + " " + note);
    boolean inTime = outcome.millis() >= least && outcome.millis() <= most;
    String row =
        "| %s | %s | %s | %d | %s | %d | %s |"
            .formatted(
                backend, operation.method(), fault, rank, outcome.text(), outcome.millis(), note);
    rows.add(row);
    if (!expected.test(outcome.text()) || !inTime) {
      wrong.add(row + (inTime ? "" : " not between " + least + " and " + most + " ms"));
    }
  }

  /** Adds a cell that cannot occur. */
  public void addImpossible(Operation operation, DrillFault fault, String why) {
    cells.add(operation + " " + fault);
    rows.add(
        "| %s | %s | %s | - | - | - | %s |".formatted(backend, operation.method(), fault, why));
  }

  /**
   * Writes the table, and fails if an outcome was not the expected one.
   *
   * @param expected the number of cells
   */
  public void finish(int expected) {
    String text = String.join("\n", rows) + "\n";
    Path file = Path.of("target", "hang-drill", backend.replaceAll("[^a-zA-Z]+", "-") + ".md");
    try {
      Files.createDirectories(file.getParent());
      Files.writeString(file, text);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    System.out.println("hang drill, " + backend + ": " + cells.size() + " cells in " + file);
    assertEquals(List.of(), wrong, () -> wrong.size() + " cells are wrong");
    assertEquals(expected, cells.size());
  }
}
