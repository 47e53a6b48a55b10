package io.nccl4j.internal.rendezvous.tcp;

import java.util.Arrays;
import java.util.Optional;

/** Why rank 0 rejects a client. The codes are part of the protocol. */
public enum RejectReason {
  MALFORMED(1, false, "does not speak the protocol of nccl4j"),
  OVERSIZED(2, false, "sent a message that is too long"),
  TOO_SLOW(3, true, "was silent or too slow"),
  WRONG_VERSION(4, false, "speaks another version of the protocol"),
  NOT_AUTHENTIC(5, false, "does not know the secret, or replays another client's message"),
  /** Recorded by rank 0 but never sent: the connection is closed. */
  TOO_MANY(6, true, "was disconnected because too many clients were pending"),
  WRONG_RUN(7, true, "belongs to another run"),
  WRONG_SIZE(8, false, "has another world size"),
  WRONG_RANK(9, false, "claims an invalid rank"),
  DUPLICATE_RANK(10, false, "claims a rank that another process has"),
  ROUND_TO_COME(11, true, "is ahead: rank 0 has not reached its round"),
  ROUND_PAST(12, false, "is behind: rank 0 has finished its round"),
  /** Recorded by rank 0 but never sent. */
  LEFT(13, true, "closed or lost the connection"),
  OTHERS_MISSING(14, true, "arrived before other ranks"),
  ROUND_FAILED(15, false, "is in a round that has failed");

  private final int code;
  private final boolean retryable;
  private final String text;

  RejectReason(int code, boolean retryable, String text) {
    this.code = code;
    this.retryable = retryable;
    this.text = text;
  }

  public static Optional<RejectReason> ofCode(int code) {
    return Arrays.stream(values()).filter(reason -> reason.code == code).findAny();
  }

  public int code() {
    return code;
  }

  /** Returns whether the same client may be served later. */
  public boolean retryable() {
    return retryable;
  }

  /** Returns whether correct clients get this answer too. */
  public boolean benign() {
    return this == ROUND_TO_COME || this == OTHERS_MISSING || this == ROUND_FAILED;
  }

  /** Returns what the client did, as a predicate of its name. */
  public String text() {
    return text;
  }
}
