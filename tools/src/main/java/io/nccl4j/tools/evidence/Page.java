package io.nccl4j.tools.evidence;

import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** Formats a run as a Markdown page. */
final class Page {
  private static final String PROGRAM = Child.class.getName();
  private static final String JAVA = "$JAVA";

  private final StringBuilder text = new StringBuilder();

  private Page() {}

  static String of(Run run) {
    Page page = new Page();
    page.head(run);
    page.steps(run.outcomes());
    run.steps().forEach(step -> page.section(step, run.source()));
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
        "Written by `scripts/nccl4j evidence` on %s, from nccl4j %s. Not edited."
            .formatted(run.source().date(), run.source().build()));
    if (run.steps().stream().anyMatch(step -> !step.source().equals(run.source()))) {
      line("Steps from earlier runs on the same kind of machine are marked.");
    }
    line(
        "The same in JSON: `evidence.json`. In commands, `$BUNDLE` is the directory of the bundle,"
            + " and `$JAVA` is:");
    line("");
    run.outcomes().stream()
        .flatMap(outcome -> outcome.step().commands().stream())
        .filter(command -> command.words().contains(PROGRAM))
        .reduce((first, second) -> second)
        .ifPresent(command -> fenced(words(command, 0, programAt(command) + 1)));
  }

  private void steps(List<Outcome> outcomes) {
    double seconds = outcomes.stream().mapToDouble(Outcome::seconds).sum();
    line("**%s**, in %d s".formatted(verdict(outcomes), Math.round(seconds)));
    line("");
    row(List.of("step", "result", "seconds", ""));
    rule(4);
    for (Outcome outcome : outcomes) {
      row(
          List.of(
              outcome.step().title(),
              outcome.status().bad()
                  ? "**" + outcome.status().label() + "**"
                  : outcome.status().label(),
              seconds(outcome),
              outcome.report().summary()));
    }
    line("");
  }

  /** Returns the number of steps with each result, for the page and the terminal. */
  static String verdict(List<Outcome> outcomes) {
    long passed = count(outcomes, Outcome.Status.PASSED);
    long impossible = count(outcomes, Outcome.Status.NOT_POSSIBLE);
    long unfinished =
        count(outcomes, Outcome.Status.NOT_RUN) + count(outcomes, Outcome.Status.RUNNING);
    long failed = outcomes.size() - passed - impossible - unfinished;
    return "%d steps: %d passed, %d not possible here, %d failed"
            .formatted(outcomes.size(), passed, impossible, failed)
        + (unfinished == 0 ? "" : ", %d not run to the end".formatted(unfinished));
  }

  private static long count(List<Outcome> outcomes, Outcome.Status status) {
    return outcomes.stream().filter(outcome -> outcome.status() == status).count();
  }

  private void section(Run.Recorded step, Run.RunSource latest) {
    Outcome outcome = step.outcome();
    line("## %s".formatted(outcome.step().title()));
    line("");
    Run.RunSource source = step.source();
    if (!source.equals(latest)) {
      String versions = source.versions().equals(latest.versions()) ? "" : "; " + source.versions();
      line("From the run of %s, nccl4j %s%s.".formatted(source.date(), source.build(), versions));
      line("");
    }
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
        .tails()
        .forEach((label, tail) -> fenced("the end of the output, " + label + ":\n" + tail));
  }

  private static String seconds(Outcome outcome) {
    return String.valueOf(Table.rounded(outcome.seconds(), 1));
  }

  private static String sentence(String words) {
    return Character.toUpperCase(words.charAt(0)) + words.substring(1);
  }

  /** Formats a command for a shell; {@code $JAVA} stands for the common JVM command. */
  static String shell(Step.Command command) {
    String variables =
        command.environment().entrySet().stream()
            .filter(variable -> !variable.getKey().equals("CLASSPATH"))
            .sorted(Map.Entry.comparingByKey())
            .map(variable -> variable.getKey() + "=" + variable.getValue() + " ")
            .collect(Collectors.joining());
    int program = programAt(command);
    return variables
        + (program < 0 ? "" : JAVA + " ")
        + words(command, program + 1, command.words().size());
  }

  private static int programAt(Step.Command command) {
    return command.words().indexOf(PROGRAM);
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
  static String escaped(String text) {
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
