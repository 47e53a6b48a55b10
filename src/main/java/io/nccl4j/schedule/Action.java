package io.nccl4j.schedule;

/**
 * What a rank does with a slice in one step, by the names of NCCL's primitives. To reduce is to
 * fold the rank's own data onto what was received; to copy is to keep the outcome as the result.
 */
public enum Action {
  /** Sends its own data. */
  SEND(false, false, false, true),
  /** Receives, folds, and sends the partial result. */
  RECV_REDUCE_SEND(true, true, false, true),
  /** Receives, folds, and has the result, which it keeps. */
  RECV_REDUCE_COPY(true, true, true, false),
  /** Receives, folds, and has the result, which it keeps and sends. */
  RECV_REDUCE_COPY_SEND(true, true, true, true),
  /** Receives a result, which it keeps and sends. */
  RECV_COPY_SEND(true, false, true, true),
  /** Receives a result, which it keeps. */
  RECV(true, false, true, false);

  private final boolean receives;
  private final boolean reduces;
  private final boolean keeps;
  private final boolean sends;

  Action(boolean receives, boolean reduces, boolean keeps, boolean sends) {
    this.receives = receives;
    this.reduces = reduces;
    this.keeps = keeps;
    this.sends = sends;
  }

  /** {@return whether the rank receives something} */
  public boolean receives() {
    return receives;
  }

  /** {@return whether the rank folds its own data onto what it received} */
  public boolean reduces() {
    return reduces;
  }

  /** {@return whether the outcome is final, and the rank keeps it} */
  public boolean keeps() {
    return keeps;
  }

  /** {@return whether the rank sends the outcome on} */
  public boolean sends() {
    return sends;
  }
}
