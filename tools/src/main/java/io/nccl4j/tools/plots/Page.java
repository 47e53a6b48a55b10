package io.nccl4j.tools.plots;

import io.nccl4j.tools.cli.JsonTree;
import io.nccl4j.tools.cli.Template;
import java.io.IOException;
import java.util.List;
import java.util.Locale;

/**
 * Charts and tables as one self-contained HTML file, for phones and wider screens, in light and
 * dark. A script in the page draws the charts for the available width.
 *
 * @param title the title
 * @param lines the paragraphs below the title
 * @param warning a prominent warning, or an empty string
 * @param charts the charts; those without curves are omitted
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
   * @throws IOException if this program's resources are incomplete
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
    // Split first, since inserted text may contain something like a placeholder.
    String[] parts = Template.read(Page.class, "page.html").split("@[A-Z]+@", -1);
    String data = JsonTree.script(charts.stream().map(Page::json).toList());
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

  private static Object json(Chart chart) {
    return JsonTree.object(
        "title", chart.title(),
        "x", json(chart.x()),
        "y", json(chart.y()),
        "curves", chart.curves().stream().map(Page::json).toList());
  }

  private static Object json(Axis axis) {
    return JsonTree.object("label", axis.label(), "scale", name(axis.scale()));
  }

  private static Object json(Curve curve) {
    return JsonTree.object(
        "name", curve.name(),
        "colour", curve.colour() % Curve.COLOURS,
        "line", name(curve.line()),
        "marked", curve.marked(),
        "points", curve.points().stream().map(point -> List.of(point.x(), point.y())).toList());
  }
}
