package io.nccl4j.tools.perf;

import io.nccl4j.ReduceOp;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;

/** The reduction operators, with their names in nccl-tests. */
enum Operator {
  SUM("sum"),
  PROD("prod"),
  MAX("max"),
  MIN("min"),
  AVG("avg"),
  /** The sum of all ranks' data, each multiplied by that rank's factor. */
  MULSUM("mulsum");

  private final String label;

  Operator(String label) {
    this.label = label;
  }

  /** Returns the name on the command line and in the table. */
  String label() {
    return label;
  }

  /** Returns nccl4j's operator, or null for the one that each communicator creates. */
  ReduceOp standard() {
    return switch (this) {
      case SUM -> ReduceOp.SUM;
      case PROD -> ReduceOp.PROD;
      case MAX -> ReduceOp.MAX;
      case MIN -> ReduceOp.MIN;
      case AVG -> ReduceOp.AVG;
      case MULSUM -> null;
    };
  }

  /** Returns the operator with a name, or all operators for {@code all}. */
  static List<Operator> named(String name) {
    if (name.equals("all")) {
      return List.of(values());
    }
    return Arrays.stream(values())
        .filter(op -> op.label.equals(name))
        .findAny()
        .map(List::of)
        .orElseThrow(
            () ->
                new IllegalArgumentException(
                    "'" + name + "' is not an operator; use one of " + names() + " or all"));
  }

  private static String names() {
    return Arrays.stream(values()).map(Operator::label).collect(Collectors.joining(", "));
  }
}
