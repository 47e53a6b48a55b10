package io.nccl4j.tools.plots;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.io.InputStream;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Locale;

/**
 * Charts and tables as one HTML file that refers to no other, readable from the width of a phone
 * on, in light and dark. The charts are drawn by the page itself, for the width that it has.
 *
 * @param title what it is of
 * @param lines what stands below the title, a paragraph each
 * @param warning what nobody may overlook, or an empty text
 * @param charts the charts; those without curves are left out
 * @param tables the tables
 */
public record Page(
    String title, List<String> lines, String warning, List<Chart> charts, List<Table> tables) {
  /** Copies the lists. */
  public Page {
    lines = List.copyOf(lines);
    charts = charts.stream().filter(chart -> !chart.curves().isEmpty()).toList();
    tables = List.copyOf(tables);
  }

  /**
   * {@return the page}
   *
   * @throws IOException if this program is not complete
   */
  public String html() throws IOException {
    StringBuilder head = new StringBuilder("<h1>").append(escaped(title)).append("</h1>\n");
    if (!warning.isEmpty()) {
      head.append("<p class=\"warning\">").append(escaped(warning)).append("</p>\n");
    }
    for (String line : lines) {
      head.append("<p>").append(escaped(line)).append("</p>\n");
    }
    StringBuilder below = new StringBuilder();
    tables.forEach(table -> write(below, table));
    // Text that is put in may look like a place for another.
    String[] parts = template().split("@[A-Z]+@", -1);
    // No data may end the script element that it stands in.
    String data = json().replace("<", "\\u003c");
    return parts[0]
        + escaped(title)
        + parts[1]
        + head
        + parts[2]
        + below
        + parts[3]
        + data
        + parts[4];
  }

  private static void write(StringBuilder html, Table table) {
    html.append("<section>\n<h2>").append(escaped(table.title())).append("</h2>\n");
    if (!table.about().isEmpty()) {
      html.append("<p class=\"soft\">").append(escaped(table.about())).append("</p>\n");
    }
    html.append("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"")
        .append(escaped(table.title()))
        .append("\"><table>\n<thead><tr>");
    for (int i = 0; i < table.columns().size(); i++) {
      html.append(text(table, i) ? "<th scope=\"col\" class=\"text\">" : "<th scope=\"col\">")
          .append(escaped(table.columns().get(i)))
          .append("</th>");
    }
    html.append("</tr></thead>\n<tbody>\n");
    for (List<Table.Cell> row : table.rows()) {
      html.append("<tr>");
      for (int i = 0; i < row.size(); i++) {
        cell(html, row.get(i), i == 0);
      }
      html.append("</tr>\n");
    }
    html.append("</tbody></table></div>\n</section>\n");
  }

  private static boolean text(Table table, int column) {
    return table.rows().stream().anyMatch(row -> row.get(column).kind() == Table.Kind.TEXT);
  }

  private static void cell(StringBuilder html, Table.Cell cell, boolean head) {
    html.append(head ? "<th scope=\"row\">" : "<td class=\"" + name(cell.kind()) + "\">")
        .append(escaped(cell.text()))
        .append(head ? "</th>" : "</td>");
  }

  private static String name(Enum<?> value) {
    return value.name().toLowerCase(Locale.ROOT);
  }

  private static String escaped(String text) {
    return text.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace("\"", "&quot;");
  }

  private static String template() throws IOException {
    try (InputStream in = Page.class.getResourceAsStream("page.html")) {
      if (in == null) {
        throw new IOException("page.html is missing from this program");
      }
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  private String json() throws IOException {
    StringWriter text = new StringWriter();
    try (JsonGenerator json = new JsonFactory().createGenerator(text)) {
      json.writeStartArray();
      for (Chart chart : charts) {
        json.writeStartObject();
        json.writeStringField("title", chart.title());
        axis(json, "x", chart.x());
        axis(json, "y", chart.y());
        json.writeArrayFieldStart("curves");
        for (Curve curve : chart.curves()) {
          curve(json, curve);
        }
        json.writeEndArray();
        json.writeEndObject();
      }
      json.writeEndArray();
    }
    return text.toString();
  }

  private static void axis(JsonGenerator json, String name, Axis axis) throws IOException {
    json.writeObjectFieldStart(name);
    json.writeStringField("label", axis.label());
    json.writeStringField("scale", name(axis.scale()));
    json.writeEndObject();
  }

  private static void curve(JsonGenerator json, Curve curve) throws IOException {
    json.writeStartObject();
    json.writeStringField("name", curve.name());
    json.writeNumberField("colour", curve.colour() % Curve.COLOURS);
    json.writeStringField("line", name(curve.line()));
    json.writeBooleanField("marked", curve.marked());
    json.writeArrayFieldStart("points");
    for (Curve.Point point : curve.points()) {
      json.writeArray(new double[] {point.x(), point.y()}, 0, 2);
    }
    json.writeEndArray();
    json.writeEndObject();
  }
}
