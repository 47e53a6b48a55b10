package io.nccl4j.internal.rendezvous;

import io.nccl4j.Backend;
import io.nccl4j.DeviceType;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Optional;

/** The backend that a rank will use an id with, as it is announced. Codes are part of protocols. */
public enum RankBackend {
  /** The rank exchanges an id without saying what for. */
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

  /**
   * Returns the first rank whose backend is not rank 0's, if there is one.
   *
   * @param backends each rank's backend, rank 0's first; null for ranks that have not come
   */
  public static Optional<Mismatch> mismatch(RankBackend[] backends) {
    RankBackend zero = backends[0];
    for (int rank = 1; rank < backends.length; rank++) {
      RankBackend its = backends[rank];
      if (its != null && its != zero && its != UNKNOWN && zero != UNKNOWN) {
        return Optional.of(new Mismatch(rank, its, zero));
      }
    }
    return Optional.empty();
  }

  /**
   * Two ranks that cannot be in one communicator.
   *
   * @param rank the first rank whose backend is not rank 0's
   * @param its that rank's backend
   * @param ofZero rank 0's backend
   */
  public record Mismatch(int rank, RankBackend its, RankBackend ofZero) {
    public static final int BYTES = 3 * Integer.BYTES;

    /** Writes a mismatch, or that there is none. */
    public static void write(Optional<Mismatch> mismatch, ByteBuffer out) {
      out.putInt(mismatch.map(Mismatch::rank).orElse(0));
      out.putInt(mismatch.map(Mismatch::its).orElse(UNKNOWN).code);
      out.putInt(mismatch.map(Mismatch::ofZero).orElse(UNKNOWN).code);
    }

    public static Optional<Mismatch> read(ByteBuffer in) {
      Mismatch read = new Mismatch(in.getInt(), ofCode(in.getInt()), ofCode(in.getInt()));
      return read.rank == 0 ? Optional.empty() : Optional.of(read);
    }

    /** Throws what every rank gets that has come, if ranks use different backends. */
    public static void check(Optional<Mismatch> mismatch) throws ExchangeFailedException {
      if (mismatch.isPresent()) {
        throw new ExchangeFailedException(mismatch.get().toString());
      }
    }

    @Override
    public String toString() {
      return "rank "
          + rank
          + " uses "
          + its.text
          + " and rank 0 "
          + ofZero.text
          + "; all ranks of a communicator need the same backend. Open Backend.nccl() on every rank,"
          + " or Backend.reference(n). After Backend.auto(), fallbackReason() on the rank with the"
          + " reference says why it does not use NCCL";
    }
  }
}
