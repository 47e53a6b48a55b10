package io.nccl4j.internal.reference.transport;

/** The purpose of a link; links of different purposes are independent. */
public enum Route {
  RING,
  UP,
  DOWN,
  EXCHANGE,
  MESSAGES;

  private static final Route[] ALL = values();

  /** Returns the route with this ordinal, or null if there is none. */
  static Route of(int ordinal) {
    return ordinal < ALL.length ? ALL[ordinal] : null;
  }
}
