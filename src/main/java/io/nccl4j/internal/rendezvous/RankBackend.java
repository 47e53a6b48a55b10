package io.nccl4j.internal.rendezvous;

import io.nccl4j.Backend;
import io.nccl4j.DeviceType;
import java.util.Arrays;
import java.util.Optional;

/** The backend that a rank will use an id with. The codes are part of the exchange. */
public enum RankBackend {
  /** The rank did not specify a backend. */
  UNKNOWN(0, "an unknown backend"),
  NCCL(1, "NCCL"),
  REFERENCE(2, "the reference backend");

  private final int code;
  private final String text;

  RankBackend(int code, String text) {
    this.code = code;
    this.text = text;
  }

  public static RankBackend of(Backend backend) {
    return backend.deviceType() == DeviceType.HOST ? REFERENCE : NCCL;
  }

  public static RankBackend ofCode(int code) {
    return Arrays.stream(values()).filter(each -> each.code == code).findAny().orElse(UNKNOWN);
  }

  public int code() {
    return code;
  }

  /** Returns why a rank cannot be in one communicator with rank 0, or nothing if it can. */
  static Optional<String> mismatch(int rank, RankBackend backend, RankBackend ofRankZero) {
    if (backend == ofRankZero || backend == UNKNOWN || ofRankZero == UNKNOWN) {
      return Optional.empty();
    }
    return Optional.of(
        "rank "
            + rank
            + " uses "
            + backend.text
            + " and rank 0 "
            + ofRankZero.text
            + "; all ranks of a communicator need the same backend. Open Backend.nccl() on every"
            + " rank, or Backend.reference(n). After Backend.auto(), fallbackReason() on the rank"
            + " with the reference backend says why it does not use NCCL");
  }
}
