package io.nccl4j.tools.doctor;

import io.nccl4j.tools.plots.Page;
import io.nccl4j.tools.plots.Table;
import io.nccl4j.tools.plots.Table.Cell;
import java.io.IOException;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** Formats a report as a page. */
final class HtmlPage {
  private HtmlPage() {}

  static String of(Report report) throws IOException {
    return new Page(
            "nccl4j doctor",
            report.usable() ? Map.of("verdict", report.verdict()) : Map.of(),
            List.of(),
            report.usable() ? "" : report.verdict(),
            "",
            List.of(
                new Table(
                    "Findings",
                    "",
                    List.of("", "finding, what it means, what to do"),
                    report.findings().stream().map(each -> row(each.finding())).toList()),
                new Table(
                    "Found",
                    "",
                    List.of("", "here"),
                    report.found().entrySet().stream()
                        .map(each -> List.of(Cell.of(each.getKey()), Cell.text(each.getValue())))
                        .toList())))
        .html();
  }

  private static List<Cell> row(Finding finding) {
    return List.of(
        Cell.of(finding.severity().name().toLowerCase(Locale.ROOT)),
        Cell.text(
            "%s\n%s\nMeans: %s\nDo: %s"
                .formatted(
                    finding.title(),
                    String.join("\n", finding.details()),
                    finding.meaning(),
                    finding.remedy())
                .replace("\n\n", "\n")));
  }
}
