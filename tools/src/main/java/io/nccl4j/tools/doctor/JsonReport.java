package io.nccl4j.tools.doctor;

import static io.nccl4j.tools.cli.JsonTree.object;

import io.nccl4j.tools.cli.JsonTree;
import java.util.Locale;

/** Formats a report as JSON. It excludes the environment, which may contain secrets. */
final class JsonReport {
  private static final int VERSION = 1;

  private JsonReport() {}

  static String of(Report report) {
    return JsonTree.text(
        object(
            "version", VERSION,
            "usable", report.usable(),
            "exit_status", report.status(),
            "verdict", report.verdict(),
            "found", report.found(),
            "checks", report.checks(),
            "findings", report.findings().stream().map(JsonReport::finding).toList()));
  }

  private static Object finding(Report.CheckFinding each) {
    return object(
        "severity", each.finding().severity().name().toLowerCase(Locale.ROOT),
        "check", each.check(),
        "finding", each.finding().title(),
        "meaning", each.finding().meaning(),
        "remedy", each.finding().remedy(),
        "details", each.finding().details());
  }
}
