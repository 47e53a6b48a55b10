package io.nccl4j.internal.rendezvous.tcp;

import java.util.Arrays;
import java.util.Optional;

/** Why rank 0 turns a client away. The codes are part of the protocol. */
public enum RejectReason {
  MALFORMED(1, false, "does not speak the protocol of nccl4j"),
  OVERSIZED(2, false, "sent a message that is too long"),
  TOO_SLOW(3, true, "was silent or too slow"),
  WRONG_VERSION(4, false, "speaks another version of the protocol"),
  NOT_AUTHENTIC(5, false, "does not know the secret, or replays what another has sent"),
  /** Only noted by rank 0, never sent: the connection is closed. */
  TOO_MANY(6, true, "was one of too many at once"),
  WRONG_RUN(7, true, "belongs to another run"),
  WRONG_SIZE(8, false, "has another world size"),
  WRONG_RANK(9, false, "claims a rank that is not for clients"),
  DUPLICATE_RANK(10, false, "claims a rank that another process has"),
  ROUND_TO_COME(11, true, "is ahead: rank 0 has not come to its round"),
  ROUND_PAST(12, false, "is behind: rank 0 has left its round"),
  /** Only noted by rank 0, never sent. */
  LEFT(13, true, "closed or broke the connection"),
  OTHERS_MISSING(14, true, "came before other ranks"),
  ROUND_FAILED(15, false, "is in a round that has failed");

  private final int code;
  private final boolean worthRetrying;
  private final String text;

  RejectReason(int code, boolean worthRetrying, String text) {
    this.code = code;
    this.worthRetrying = worthRetrying;
    this.text = text;
  }

  public static Optional<RejectReason> ofCode(int code) {
    return Arrays.stream(values()).filter(refusal -> refusal.code == code).findAny();
  }

  public int code() {
    return code;
  }

  /** Returns whether the same client may be served later. */
  public boolean worthRetrying() {
    return worthRetrying;
  }

  /** Returns whether clients that do nothing wrong get this answer. */
  public boolean blameless() {
    return this == ROUND_TO_COME || this == OTHERS_MISSING || this == ROUND_FAILED;
  }

  /** Returns what the client did, to be read after its name. */
  public String text() {
    return text;
  }
}
