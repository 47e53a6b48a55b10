package io.nccl4j.tools.doctor;

import java.util.List;

/** One check of the machine. A check leaves nothing changed and does not block. */
interface Check {
  /** Returns the check's name, as reports print it. */
  String name();

  /** Returns the problems found; empty if there are none. */
  List<Finding> findings(MachineState state);
}
