package io.nccl4j.tools.doctor;

import java.util.Arrays;
import java.util.List;

/**
 * A choice of network interfaces or InfiniBand devices as NCCL writes it: names separated by
 * commas, each the beginning of a name and perhaps followed by a port ({@code mlx5_0:1}); after
 * {@code =} whole names; after {@code ^} all but these.
 *
 * @param except whether it names what is not to be used
 * @param exact whether it has whole names
 * @param entries the names
 */
record InterfaceFilter(boolean except, boolean exact, List<Entry> entries) {
  /**
   * One name.
   *
   * @param name the name, or how it begins
   * @param port the port, or -1 for all
   */
  record Entry(String name, int port) {
    @Override
    public String toString() {
      return port < 0 ? name : name + ":" + port;
    }
  }

  static InterfaceFilter parse(String text) {
    boolean except = text.startsWith("^");
    String rest = except ? text.substring(1) : text;
    boolean exact = rest.startsWith("=");
    String list = exact ? rest.substring(1) : rest;
    return new InterfaceFilter(
        except,
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

  /** Returns whether one entry matches a name and a port; port -1 stands for any. */
  boolean matches(Entry entry, String name, int port) {
    boolean named = exact ? name.equals(entry.name()) : name.startsWith(entry.name());
    return named && (port < 0 || entry.port() < 0 || port == entry.port());
  }

  /** Returns whether NCCL would take a name and a port. */
  boolean takes(String name, int port) {
    boolean listed =
        entries.isEmpty() || entries.stream().anyMatch(entry -> matches(entry, name, port));
    return listed != except;
  }
}
