package io.nccl4j.internal.schedule;

import org.jspecify.annotations.NullMarked;

/**
 * The work of a rank on a slice in one step, named after NCCL's primitives. <em>Reduce</em> folds
 * the rank's own data onto the received data; <em>copy</em> keeps the outcome as the result.
 */
@NullMarked
public enum Action {
  /** Sends its own data. */
  SEND(false, false, false, true),
  /** Receives, folds, and sends the partial result. */
  RECV_REDUCE_SEND(true, true, false, true),
  /** Receives, folds, and keeps and sends the result. */
  RECV_REDUCE_COPY_SEND(true, true, true, true),
  /** Receives a result, and keeps and sends it. */
  RECV_COPY_SEND(true, false, true, true),
  /** Receives a result and keeps it. */
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

  /** {@return whether the rank receives} */
  public boolean receives() {
    return receives;
  }

  /** {@return whether the rank folds its own data onto the received data} */
  public boolean reduces() {
    return reduces;
  }

  /** {@return whether the outcome is final, and the rank keeps it} */
  public boolean keeps() {
    return keeps;
  }

  /** {@return whether the rank sends the outcome} */
  public boolean sends() {
    return sends;
  }
}
