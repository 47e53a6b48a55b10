package io.nccl4j.tools.doctor;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/**
 * One environment variable, or one setting in a configuration file of NCCL.
 *
 * @param name its name
 * @param value its value
 * @param source where it is set: {@code the environment} or a file
 */
record NcclVariable(String name, String value, String source) {
  private static final String ENVIRONMENT = "the environment";

  /**
   * Returns all variables of the environment, and those of NCCL's configuration files that the
   * environment does not set.
   */
  static List<NcclVariable> all(Machine machine) {
    Map<String, NcclVariable> settings = new LinkedHashMap<>();
    new TreeMap<>(machine.environment())
        .forEach((name, value) -> settings.put(name, new NcclVariable(name, value, ENVIRONMENT)));
    for (String file : files(machine)) {
      machine
          .text(file)
          .ifPresent(
              text -> lines(text, file).forEach(each -> settings.putIfAbsent(each.name(), each)));
    }
    return List.copyOf(settings.values());
  }

  /** Returns a variable; empty if it is unset or its value is empty. */
  static Optional<NcclVariable> of(String name, Machine machine) {
    return all(machine).stream()
        .filter(each -> each.name().equals(name) && !each.value().isEmpty())
        .findFirst();
  }

  /** Returns NCCL's configuration files, highest precedence first. */
  private static List<String> files(Machine machine) {
    List<String> files = new ArrayList<>();
    String named = machine.environment().getOrDefault("NCCL_CONF_FILE", "");
    String home = machine.environment().getOrDefault("HOME", "");
    if (!named.isEmpty()) {
      files.add(named);
    } else if (!home.isEmpty()) {
      files.add(home + "/.nccl.conf");
    }
    files.add("/etc/nccl.conf");
    return files;
  }

  private static List<NcclVariable> lines(String text, String file) {
    return text.lines()
        .filter(line -> !line.startsWith("#") && line.indexOf('=') > 0)
        .map(
            line -> {
              int equals = line.indexOf('=');
              return new NcclVariable(line.substring(0, equals), line.substring(equals + 1), file);
            })
        .toList();
  }

  /** Returns whether it is set in the environment, not in a file. */
  boolean inEnvironment() {
    return source.equals(ENVIRONMENT);
  }

  /** Returns {@code name=value}, followed by the file if it is set in one. */
  @Override
  public String toString() {
    return name + "=" + value + (inEnvironment() ? "" : " (in " + source + ")");
  }
}
