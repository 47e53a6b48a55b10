package io.nccl4j.tools.doctor;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.util.DefaultPrettyPrinter;
import java.io.IOException;
import java.io.PrintStream;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** Writes a report as one JSON document. The environment, which may hold secrets, is not in it. */
final class JsonReport {
  private static final int VERSION = 1;

  private JsonReport() {}

  static void write(Report report, PrintStream out) throws IOException {
    try (JsonGenerator json =
        new JsonFactory()
            .createGenerator(out)
            .disable(JsonGenerator.Feature.AUTO_CLOSE_TARGET)
            .setPrettyPrinter(new DefaultPrettyPrinter())) {
      json.writeStartObject();
      json.writeNumberField("version", VERSION);
      json.writeBooleanField("usable", report.usable());
      json.writeNumberField("exit_status", report.status());
      json.writeStringField("verdict", report.verdict());
      json.writeObjectFieldStart("found");
      for (Map.Entry<String, String> each : report.found().entrySet()) {
        json.writeStringField(each.getKey(), each.getValue());
      }
      json.writeEndObject();
      strings(json, "checks", report.checks());
      json.writeArrayFieldStart("findings");
      for (Report.CheckFinding each : report.findings()) {
        finding(json, each);
      }
      json.writeEndArray();
      json.writeEndObject();
    }
    out.println();
  }

  private static void finding(JsonGenerator json, Report.CheckFinding each) throws IOException {
    json.writeStartObject();
    json.writeStringField("severity", each.finding().severity().name().toLowerCase(Locale.ROOT));
    json.writeStringField("check", each.check());
    json.writeStringField("finding", each.finding().what());
    json.writeStringField("meaning", each.finding().meaning());
    json.writeStringField("remedy", each.finding().remedy());
    strings(json, "details", each.finding().details());
    json.writeEndObject();
  }

  private static void strings(JsonGenerator json, String name, List<String> values)
      throws IOException {
    json.writeArrayFieldStart(name);
    for (String value : values) {
      json.writeString(value);
    }
    json.writeEndArray();
  }
}
