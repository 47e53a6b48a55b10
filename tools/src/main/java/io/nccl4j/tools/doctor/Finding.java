package io.nccl4j.tools.doctor;

import java.util.List;

/**
 * One thing that a check has found.
 *
 * @param severity how much it matters
 * @param what one line that says what was found, with names and values
 * @param meaning one line that says what it does to a collective
 * @param remedy one line that says what to do
 * @param details what else belongs to it, line by line, such as everything that was tried
 */
record Finding(
    Severity severity, String what, String meaning, String remedy, List<String> details) {
  Finding {
    details = List.copyOf(details);
  }

  static Finding error(String what, String meaning, String remedy) {
    return new Finding(Severity.ERROR, what, meaning, remedy, List.of());
  }

  static Finding warning(String what, String meaning, String remedy) {
    return new Finding(Severity.WARNING, what, meaning, remedy, List.of());
  }

  static Finding note(String what, String meaning, String remedy) {
    return new Finding(Severity.NOTE, what, meaning, remedy, List.of());
  }

  static Finding unchecked(String what, String meaning, String remedy) {
    return new Finding(Severity.UNCHECKED, what, meaning, remedy, List.of());
  }

  Finding with(List<String> lines) {
    return new Finding(severity, what, meaning, remedy, lines);
  }
}
