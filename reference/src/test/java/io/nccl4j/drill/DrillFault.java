package io.nccl4j.drill;

/** The behaviour of rank 2 of 3 while the other ranks wait for it in a collective. */
public enum DrillFault {
  /** It does not call. */
  MISSING("missing"),
  /** It calls some time after the others. */
  LATE("late"),
  /** It calls another collective. */
  OTHER_OPERATION("another operation"),
  /** It calls with another count. */
  OTHER_COUNT("another count"),
  /** It calls with another type of the same size. */
  OTHER_TYPE("another type"),
  /** Its process is killed; if all ranks share a process, it aborts. */
  DEAD("dead"),
  /** Its process is stopped. */
  STOPPED("stopped");

  private final String label;

  DrillFault(String label) {
    this.label = label;
  }

  @Override
  public String toString() {
    return label;
  }
}
