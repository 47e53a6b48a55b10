package io.nccl4j.rendezvous;

import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;

/** Environment variables, with checked numbers. Messages name variable and value. */
record LaunchVariables(Map<String, String> environment) {
  private static final int HIGHEST_PORT = 65535;

  // For ranks, sizes and counts of nodes. A rendezvous allocates memory for each rank.
  private static final int HIGHEST = 1 << 20;

  boolean has(String name) {
    return environment.containsKey(name);
  }

  Optional<String> text(String name) {
    return Optional.ofNullable(environment.get(name)).filter(value -> !value.isBlank());
  }

  /** Returns the first of the names that is set, or the first name if none is. */
  String firstSet(String... names) {
    for (String name : names) {
      if (has(name)) {
        return name;
      }
    }
    return names[0];
  }

  /** Returns a number of at least {@code lowest}, or empty if the variable is not set. */
  OptionalInt number(String name, int lowest) {
    return has(name) ? OptionalInt.of(required(name, lowest)) : OptionalInt.empty();
  }

  private int required(String name, int lowest) {
    String value = environment.get(name);
    int number;
    try {
      number = Integer.parseInt(value.strip());
    } catch (NumberFormatException e) {
      throw new IllegalArgumentException(name + " is '" + value + "'; it must be a number", e);
    }
    if (number < lowest) {
      throw new IllegalArgumentException(
          name + " is " + number + "; it must be " + lowest + " or more");
    }
    if (number > HIGHEST) {
      throw new IllegalArgumentException(
          name + " is " + number + "; it must be " + HIGHEST + " or less");
    }
    return number;
  }

  /** Returns the number of variables only: their values may be secrets. */
  @Override
  public String toString() {
    return "LaunchVariables[" + environment.size() + "]";
  }

  static int port(String text, String name) {
    try {
      int port = Integer.parseInt(text.strip());
      if (port >= 1 && port <= HIGHEST_PORT) {
        return port;
      }
    } catch (NumberFormatException e) {
      throw new IllegalArgumentException(
          name + " has the port '" + text + "'; it must be from 1 to " + HIGHEST_PORT, e);
    }
    throw new IllegalArgumentException(
        name + " has the port " + text + "; it must be from 1 to " + HIGHEST_PORT);
  }
}
