package io.nccl4j.tools.evidence;

import io.nccl4j.tools.evidence.EmulatedResult.Comparison;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Formats the results on the emulated CUDA as a Markdown page. */
final class EmulatedPage {
  /** The properties of the machine that are on the page. */
  private static final List<String> FACTS =
      List.of("Java", "system", "C library", "processor", "processors");

  /** The beginning of the names of NCCL's variables. */
  static final String VARIABLE = "NCCL_";

  private EmulatedPage() {}

  /**
   * Returns the page.
   *
   * @param source when and from which commit it was made
   * @param facts what the step {@code device} reported, and NCCL's variables
   * @param results all steps after it
   */
  static String of(Run.RunSource source, Map<String, String> facts, List<EmulatedResult> results) {
    StringBuilder page = new StringBuilder();
    page.append(head(source, facts));
    FACTS.forEach(name -> page.append(row(name, facts.getOrDefault(name, "unknown"))));
    facts.keySet().stream()
        .filter(name -> name.startsWith(VARIABLE))
        .forEach(name -> page.append(row("`" + name + "`", facts.get(name))));
    page.append("\n## Tests\n\n");
    page.append("Of several processes, rank 0 is counted. Of the evidence, steps are counted.\n\n");
    page.append(row("arrangement", "result", "run", "passed", "failed", "skipped", "seconds"));
    page.append("|---|---|---|---|---|---|---|\n");
    results.stream()
        .filter(result -> !compares(result))
        .forEach(result -> page.append(tests(result)));
    page.append("\n## Skipped\n\n").append(row("arrangement", "number", "reason"));
    page.append("|---|---|---|\n");
    for (EmulatedResult result : results) {
      result
          .skips()
          .forEach(
              (reason, number) ->
                  page.append(row(result.outcome().step().title(), number, reason)));
    }
    page.append("\n## Comparisons\n\n");
    page.append(row("compared with nccl4j's prediction or reference", "number", "different"));
    page.append("|---|---|---|\n");
    results.forEach(result -> page.append(comparisons(result)));
    failures(page, results);
    return page.toString();
  }

  private static String head(Run.RunSource source, Map<String, String> facts) {
    return """
    # NCCL %1$s on the emulated CUDA

    > **This is not a GPU result**, and it says nothing about speed. The host code of NCCL is \
    NVIDIA's; CUDA, the
    > devices and all kernels are test fixtures of nccl4j, not NVIDIA's: they carry out on \
    processors what NCCL plans.

    Written by `scripts/lib/emulated-evidence` on %2$s, from nccl4j %3$s. Not edited.
    What is emulated, and what is not: \
    [the fixture's README](../../../src/test/native/README.md#what-is-emulated-of-cuda).
    To repeat it: a libnccl %1$s that uses the shared CUDA runtime, unlike NVIDIA's packages, \
    named by `NCCL4J_EMULATED_NCCL`;
    see [A private NCCL](../../../src/test/native/README.md#a-private-nccl).

    | | |
    |---|---|
    | NCCL | %1$s |
    | CUDA headers and emulated runtime | %4$s |
    """
        .formatted(
            facts.get(DeviceReport.NCCL), source.date(), source.build(), facts.get("CUDA runtime"));
  }

  /** Returns whether a step counts compared results, not tests. */
  private static boolean compares(EmulatedResult result) {
    return result.outcome().step().name().startsWith("bits-");
  }

  private static String tests(EmulatedResult result) {
    List<?> counts =
        result.counts().isEmpty()
            ? List.of("unknown", "", "", "")
            : Stream.concat(
                    Stream.of(result.counts().stream().mapToLong(Long::longValue).sum()),
                    result.counts().stream())
                .toList();
    return row(
        Stream.of(
                List.of(result.outcome().step().title(), label(result)),
                counts,
                List.of(Math.round(result.outcome().seconds())))
            .flatMap(List::stream)
            .toArray());
  }

  private static String comparisons(EmulatedResult result) {
    if (compares(result) && result.comparisons().isEmpty()) {
      return row(result.outcome().step().title(), label(result), "");
    }
    return result.comparisons().stream()
        .map(EmulatedPage::comparison)
        .collect(Collectors.joining());
  }

  private static String comparison(Comparison compared) {
    long different = compared.different();
    return row(compared.title(), compared.compared(), different == 0 ? 0 : "**" + different + "**");
  }

  private static void failures(StringBuilder page, List<EmulatedResult> results) {
    List<EmulatedResult> bad =
        results.stream().filter(result -> result.outcome().status().bad()).toList();
    if (!bad.isEmpty()) {
      page.append("\n## Failures\n");
    }
    for (EmulatedResult result : bad) {
      page.append("\n### ").append(result.outcome().step().title()).append("\n\n");
      page.append(label(result)).append(": ").append(result.outcome().report().summary());
      page.append("\n\n");
      result
          .failures()
          .forEach(failure -> page.append("- ").append(Page.escaped(failure)).append('\n'));
    }
  }

  private static String label(EmulatedResult result) {
    Outcome.Status status = result.outcome().status();
    return status.bad() ? "**" + status.label() + "**" : status.label();
  }

  private static String row(Object... cells) {
    return Stream.of(cells)
        .map(cell -> Page.escaped(String.valueOf(cell)))
        .collect(Collectors.joining(" | ", "| ", " |\n"));
  }
}
