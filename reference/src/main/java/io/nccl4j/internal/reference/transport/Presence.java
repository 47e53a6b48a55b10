package io.nccl4j.internal.reference.transport;

/** Whether a rank still takes part in its communicator. */
public enum Presence {
  HERE,
  /** Its operations have been cut off, but it may still join a bootstrap of a new communicator. */
  REVOKED,
  CLOSED,
  ABORTED,
  /** Its process has died or is unreachable. */
  LOST;

  private static final Presence[] ALL = values();

  /** Returns the presence with this ordinal number. */
  public static Presence of(int ordinal) {
    return ALL[ordinal];
  }

  /** Returns whether unfinished operations were cut off. */
  public boolean cut() {
    return this == REVOKED || this == ABORTED || this == LOST;
  }

  /** Returns whether the rank will complete no further operations. */
  public boolean gone() {
    return this != HERE;
  }

  /** Returns whether the rank takes no part in anything, including bootstraps. */
  public boolean left() {
    return this == CLOSED || this == ABORTED || this == LOST;
  }
}
