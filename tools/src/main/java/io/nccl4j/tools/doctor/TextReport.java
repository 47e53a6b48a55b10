package io.nccl4j.tools.doctor;

import java.io.PrintStream;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** Prints a report as text. */
final class TextReport {
  private static final String LABEL = "%-11s%s%n";

  private TextReport() {}

  static void write(Report report, PrintStream out) {
    out.println("found");
    for (Map.Entry<String, String> each : report.found().entrySet()) {
      out.printf(Locale.ROOT, "  %-22s%s%n", each.getKey(), each.getValue());
    }
    for (Report.CheckFinding each : report.findings()) {
      out.println();
      write(each.finding(), out);
    }
    out.println();
    List<String> withoutFindings =
        report.checks().stream()
            .filter(
                check -> report.findings().stream().noneMatch(each -> each.check().equals(check)))
            .toList();
    if (!withoutFindings.isEmpty()) {
      out.println("no findings: " + String.join(", ", withoutFindings));
    }
    out.printf(Locale.ROOT, LABEL, "verdict", report.verdict());
  }

  private static void write(Finding finding, PrintStream out) {
    String severity = finding.severity().name().toLowerCase(Locale.ROOT);
    out.printf(Locale.ROOT, LABEL, severity, finding.title());
    for (String detail : finding.details()) {
      out.printf(Locale.ROOT, "             %s%n", detail);
    }
    out.printf(Locale.ROOT, LABEL, "  means", finding.meaning());
    out.printf(Locale.ROOT, LABEL, "  do", finding.remedy());
  }
}
