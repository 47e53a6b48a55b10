package io.nccl4j.tools.doctor;

import java.util.List;

/** Looks at one side of the evidence. A check changes nothing that lasts and never waits. */
interface Check {
  /** Returns the check's name, for reports. */
  String name();

  /** Returns what there is to say; nothing where all is well. */
  List<Finding> findings(MachineState evidence);
}
