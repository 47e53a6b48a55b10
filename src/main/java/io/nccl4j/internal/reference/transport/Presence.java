package io.nccl4j.internal.reference.transport;

/** Whether a rank is there. */
public enum Presence {
  HERE,
  /** Its operations are ended, but it may still meet others to make a new communicator. */
  REVOKED,
  CLOSED,
  ABORTED,
  /** Its process has died, or cannot be reached. */
  LOST;

  private static final Presence[] ALL = values();

  /** Returns the presence with this ordinal number. */
  public static Presence of(int ordinal) {
    return ALL[ordinal];
  }

  /** Returns whether operations were ended without being finished. */
  public boolean cut() {
    return this == REVOKED || this == ABORTED || this == LOST;
  }

  /** Returns whether no operation of the rank can be waited for any more. */
  public boolean gone() {
    return this != HERE;
  }

  /** Returns whether the rank takes part in nothing any more. */
  public boolean left() {
    return this == CLOSED || this == ABORTED || this == LOST;
  }
}
