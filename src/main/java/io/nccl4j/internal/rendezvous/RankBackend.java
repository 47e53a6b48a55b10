package io.nccl4j.internal.rendezvous;

import io.nccl4j.Backend;
import io.nccl4j.DeviceType;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Optional;

/** The backend that a rank will use an id with. The codes are part of the protocols. */
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

  /**
   * Returns the first rank whose backend differs from rank 0's, if any.
   *
   * @param backends each rank's backend, in rank order; null for ranks that have not arrived
   */
  public static Optional<Mismatch> mismatch(RankBackend[] backends) {
    RankBackend zero = backends[0];
    for (int rank = 1; rank < backends.length; rank++) {
      RankBackend other = backends[rank];
      if (other != null && other != zero && other != UNKNOWN && zero != UNKNOWN) {
        return Optional.of(new Mismatch(rank, other, zero));
      }
    }
    return Optional.empty();
  }

  /**
   * Two ranks that cannot be in one communicator.
   *
   * @param rank the first rank whose backend differs from rank 0's
   * @param backend that rank's backend
   * @param rootBackend rank 0's backend
   */
  public record Mismatch(int rank, RankBackend backend, RankBackend rootBackend) {
    public static final int BYTES = 3 * Integer.BYTES;

    /** Writes a mismatch; rank 0 stands for none. */
    public static void write(Optional<Mismatch> mismatch, ByteBuffer out) {
      out.putInt(mismatch.map(Mismatch::rank).orElse(0));
      out.putInt(mismatch.map(Mismatch::backend).orElse(UNKNOWN).code);
      out.putInt(mismatch.map(Mismatch::rootBackend).orElse(UNKNOWN).code);
    }

    public static Optional<Mismatch> read(ByteBuffer in) {
      Mismatch read = new Mismatch(in.getInt(), ofCode(in.getInt()), ofCode(in.getInt()));
      return read.rank == 0 ? Optional.empty() : Optional.of(read);
    }

    /** Throws the exception for every arrived rank, if ranks use different backends. */
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
          + backend.text
          + " and rank 0 "
          + rootBackend.text
          + "; all ranks of a communicator need the same backend. Open Backend.nccl() on every"
          + " rank, or Backend.reference(n). After Backend.auto(), fallbackReason() on the rank"
          + " with the reference backend says why it does not use NCCL";
    }
  }
}
