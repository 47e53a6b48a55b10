package io.nccl4j.tools.plots;

import io.nccl4j.tools.cli.Template;
import java.io.IOException;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * The one layout of all pages: a self-contained HTML file with a headline, a drawing and tables,
 * for phones and wider screens, in light and dark.
 *
 * @param title the title
 * @param headline the few values that a reader looks for first, by name
 * @param lines the paragraphs below the headline
 * @param warning a prominent warning, or an empty string
 * @param drawing HTML with the charts or another drawing and its script, or an empty string
 * @param tables the tables; those without rows are omitted
 */
public record Page(
    String title,
    Map<String, String> headline,
    List<String> lines,
    String warning,
    String drawing,
    List<Table> tables) {
  /** Copies the lists. */
  public Page {
    headline = Collections.unmodifiableMap(new LinkedHashMap<>(headline));
    lines = List.copyOf(lines);
    tables = tables.stream().filter(table -> !table.rows().isEmpty()).toList();
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
    head.append("<dl id=\"headline\">");
    headline.forEach(
        (name, value) ->
            head.append("<div><dt>")
                .append(escaped(name))
                .append("</dt><dd>")
                .append(escaped(value))
                .append("</dd></div>\n"));
    head.append("</dl>\n");
    for (String line : lines) {
      head.append("<p>").append(escaped(line)).append("</p>\n");
    }
    StringBuilder below = new StringBuilder();
    tables.forEach(table -> write(below, table));
    // Split first, since inserted text may contain something like a placeholder.
    String[] parts = Template.read(Page.class, "page.html").split("@[A-Z]+@", -1);
    return parts[0]
        + escaped(title)
        + parts[1]
        + head
        + parts[2]
        + drawing
        + parts[3]
        + below
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
    html.append(
            head
                ? "<th scope=\"row\">"
                : "<td class=\"" + cell.kind().name().toLowerCase(Locale.ROOT) + "\">")
        .append(escaped(cell.text()))
        .append(head ? "</th>" : "</td>");
  }

  private static String escaped(String text) {
    return text.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace("\"", "&quot;");
  }
}
