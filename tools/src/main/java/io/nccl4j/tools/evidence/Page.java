package io.nccl4j.tools.evidence;

import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** Formats a run as a Markdown page. */
final class Page {
  /** The beginning of the names of the classes that are run. */
  private static final String PROGRAMS = "io.nccl4j.tools.";

  private final StringBuilder text = new StringBuilder();

  private Page() {}

  static String of(Run run) {
    Page page = new Page();
    page.head(run);
    page.steps(run);
    run.steps().forEach(page::section);
    return page.text.toString();
  }

  private void head(Run run) {
    boolean gpus = run.machine().hasGpus();
    line(
        "# %s: %s, NCCL %s"
            .formatted(
                gpus ? "nccl4j evidence" : "Not a GPU result", run.device(), run.ncclVersion()));
    line("");
    if (!gpus) {
      line("> **This is not a GPU result.** The libraries are those of `src/test/native`:");
      line("> %s. Its times mean nothing.".formatted(run.machine().libraries().description()));
      line("");
    }
    if (run.quick()) {
      line("> A quick run (`--quick`): tiny sizes, few repetitions. Its times mean nothing.");
      line("");
    }
    line(
        "Written by `nccl4j evidence` on %s, from nccl4j %s. Not edited."
            .formatted(run.date(), run.build()));
    line("The same in JSON: `evidence.json`. In commands, `$JAVA` is:");
    line("");
    run.steps().stream()
        .flatMap(outcome -> outcome.step().commands().stream())
        .filter(command -> programAt(command) > 0)
        .reduce((first, second) -> second)
        .ifPresent(command -> fenced(words(command, 0, programAt(command))));
  }

  private void steps(Run run) {
    double seconds = run.steps().stream().mapToDouble(Outcome::seconds).sum();
    line("**%s**, in %d s".formatted(run.verdict(), Math.round(seconds)));
    line("");
    row(List.of("step", "result", "seconds", ""));
    rule(4);
    for (Outcome outcome : run.steps()) {
      String label = outcome.status().label();
      row(
          List.of(
              outcome.step().title(),
              outcome.status().bad() ? "**" + label + "**" : label,
              seconds(outcome),
              outcome.report().summary()));
    }
    line("");
  }

  private void section(Outcome outcome) {
    line("## %s".formatted(outcome.step().title()));
    line("");
    line(
        "%s, %s s: %s"
            .formatted(
                sentence(outcome.status().label()),
                seconds(outcome),
                escaped(outcome.report().summary())));
    line("");
    for (Step.Command command : outcome.step().commands()) {
      fenced(command.label() + ":\n" + shell(command));
    }
    facts(outcome.report().facts());
    for (String note : outcome.report().notes()) {
      line("- %s".formatted(escaped(note)));
    }
    if (!outcome.report().notes().isEmpty()) {
      line("");
    }
    outcome.report().tables().forEach(this::table);
    outcome
        .output()
        .forEach((label, end) -> fenced("the end of the output, " + label + ":\n" + end));
  }

  private static String seconds(Outcome outcome) {
    return String.valueOf(Table.rounded(outcome.seconds(), 1));
  }

  private static String sentence(String words) {
    return Character.toUpperCase(words.charAt(0)) + words.substring(1);
  }

  /** Formats a command for a shell; {@code $JAVA} stands for the common JVM command. */
  private static String shell(Step.Command command) {
    String variables =
        command.environment().entrySet().stream()
            .filter(variable -> !variable.getKey().equals("CLASSPATH"))
            .sorted(Map.Entry.comparingByKey())
            .map(variable -> variable.getKey() + "=" + variable.getValue() + " ")
            .collect(Collectors.joining());
    int program = programAt(command);
    return variables
        + (program < 0 ? "" : "$JAVA ")
        + words(command, Math.max(0, program), command.words().size());
  }

  private static int programAt(Step.Command command) {
    return command.words().stream()
        .filter(word -> word.startsWith(PROGRAMS))
        .findFirst()
        .map(command.words()::indexOf)
        .orElse(-1);
  }

  private static String words(Step.Command command, int from, int to) {
    return String.join(" ", command.words().subList(from, to));
  }

  private void facts(Map<String, String> facts) {
    if (facts.isEmpty()) {
      return;
    }
    row(List.of("", ""));
    rule(2);
    facts.forEach((name, value) -> row(List.of(name, value)));
    line("");
  }

  private void table(Table table) {
    line("%s:".formatted(escaped(table.title())));
    line("");
    row(table.columns());
    rule(table.columns().size());
    table.rows().forEach(this::row);
    line("");
  }

  private void row(List<?> cells) {
    line(
        cells.stream()
            .map(cell -> escaped(String.valueOf(cell)))
            .collect(Collectors.joining(" | ", "| ", " |")));
  }

  private void rule(int columns) {
    line("|" + "---|".repeat(columns));
  }

  /** Escapes program output for a Markdown table. */
  private static String escaped(String text) {
    return text.replace("|", "\\|").replace("<", "&lt;").replace('\n', ' ');
  }

  private void fenced(String block) {
    // A fence that the block cannot close.
    line("````");
    line(block.replace("````", "''''"));
    line("````");
    line("");
  }

  private void line(String line) {
    text.append(line).append('\n');
  }
}
