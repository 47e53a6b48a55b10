package io.nccl4j.tools.doctor;

import java.util.List;

/**
 * One problem that a check found.
 *
 * @param severity its severity
 * @param title what was found, in one line with names and values
 * @param meaning its effect on a collective, in one line
 * @param remedy what to do about it, in one line
 * @param details further lines, such as every path that was tried
 */
record Finding(
    Severity severity, String title, String meaning, String remedy, List<String> details) {
  Finding {
    details = List.copyOf(details);
  }

  static Finding error(String title, String meaning, String remedy) {
    return new Finding(Severity.ERROR, title, meaning, remedy, List.of());
  }

  static Finding warning(String title, String meaning, String remedy) {
    return new Finding(Severity.WARNING, title, meaning, remedy, List.of());
  }

  static Finding note(String title, String meaning, String remedy) {
    return new Finding(Severity.NOTE, title, meaning, remedy, List.of());
  }

  static Finding unchecked(String title, String meaning, String remedy) {
    return new Finding(Severity.UNCHECKED, title, meaning, remedy, List.of());
  }

  Finding with(List<String> lines) {
    return new Finding(severity, title, meaning, remedy, lines);
  }
}
