package io.nccl4j.tools.perf;

import io.nccl4j.ReduceOp;
import java.util.Locale;

/** The reduction operators, with their names in nccl-tests. */
enum Operator {
  SUM,
  PROD,
  MAX,
  MIN,
  AVG,
  /** The sum of all ranks' data, each multiplied by that rank's factor. */
  MULSUM;

  /** Returns the name on the command line and in the table. */
  String label() {
    return name().toLowerCase(Locale.ROOT);
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
}
