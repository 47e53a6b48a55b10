package io.nccl4j.tools.doctor;

import java.util.Arrays;
import java.util.List;

/**
 * A filter for network interfaces or InfiniBand devices, in NCCL's syntax: name prefixes separated
 * by commas, each optionally followed by a port ({@code mlx5_0:1}). A leading {@code =} makes the
 * names exact; a leading {@code ^} excludes them.
 *
 * @param exclude whether the names are excluded
 * @param exact whether the names are exact, not prefixes
 * @param entries the names
 */
record InterfaceFilter(boolean exclude, boolean exact, List<Entry> entries) {
  /**
   * One name.
   *
   * @param name the name or prefix
   * @param port the port, or -1 for all ports
   */
  record Entry(String name, int port) {
    @Override
    public String toString() {
      return port < 0 ? name : name + ":" + port;
    }
  }

  static InterfaceFilter parse(String text) {
    boolean exclude = text.startsWith("^");
    String rest = exclude ? text.substring(1) : text;
    boolean exact = rest.startsWith("=");
    String list = exact ? rest.substring(1) : rest;
    return new InterfaceFilter(
        exclude,
        exact,
        Arrays.stream(list.split(",", -1))
            .filter(entry -> !entry.isEmpty() && !entry.startsWith(":"))
            .map(InterfaceFilter::entry)
            .toList());
  }

  private static Entry entry(String text) {
    String[] parts = text.split(":", -1);
    boolean port = parts.length > 1 && parts[1].matches("[0-9]{1,6}");
    return new Entry(parts[0], port ? Integer.parseInt(parts[1]) : -1);
  }

  /** Returns whether an entry matches a name and a port; -1 matches any port. */
  boolean matches(Entry entry, String name, int port) {
    boolean named = exact ? name.equals(entry.name()) : name.startsWith(entry.name());
    return named && (port < 0 || entry.port() < 0 || port == entry.port());
  }

  /** Returns whether NCCL would use a name and a port. */
  boolean selects(String name, int port) {
    boolean listed =
        entries.isEmpty() || entries.stream().anyMatch(entry -> matches(entry, name, port));
    return listed != exclude;
  }
}
