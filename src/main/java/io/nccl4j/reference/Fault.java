package io.nccl4j.reference;

import io.nccl4j.NcclException;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Result;
import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.net.ProtocolException;
import java.util.BitSet;

/**
 * The first thing that went wrong among the ranks of a world, and how each rank is told.
 *
 * @param rank who found it
 * @param kind whom it concerns
 * @param text what went wrong
 * @param missing the ranks that were waited for, of {@link Kind#TIMEOUT}
 */
record Fault(int rank, Kind kind, String text, BitSet missing) {
  enum Kind {
    /** One rank failed for a reason of its own. */
    RANK_FAILED,
    /** Ranks called different things; every rank is told the same. */
    MISMATCH,
    /** Ranks did not come; those that waited for them are told so. */
    TIMEOUT,
    /** Another process cannot be understood or reached; every rank is told the same. */
    NONSENSE;

    private static final Kind[] ALL = values();
  }

  static Fault rankFailed(int rank, String text) {
    return new Fault(rank, Kind.RANK_FAILED, text, null);
  }

  static Fault mismatch(int rank, String text) {
    return new Fault(rank, Kind.MISMATCH, text, null);
  }

  static Fault timeout(int rank, String text, BitSet missing) {
    return new Fault(rank, Kind.TIMEOUT, text, missing);
  }

  static Fault nonsense(String text) {
    return new Fault(0, Kind.NONSENSE, text, null);
  }

  static Fault read(DataInput in) throws IOException {
    int rank = in.readInt();
    int kind = in.readUnsignedByte();
    if (kind >= Kind.ALL.length) {
      throw new ProtocolException("there is no fault of kind " + kind);
    }
    String text = in.readUTF();
    BitSet missing = Message.readBits(in);
    return new Fault(rank, Kind.ALL[kind], text, missing == null ? new BitSet() : missing);
  }

  @SuppressWarnings("EnumOrdinal") // Both ends are of one version of the protocol.
  void write(DataOutput out) throws IOException {
    out.writeInt(rank);
    out.writeByte(kind.ordinal());
    out.writeUTF(text);
    Message.writeBits(out, missing);
  }

  /** Returns what a rank is told whose own function was waiting. */
  NcclException seenBy(int observer, String function) {
    return switch (kind) {
      case MISMATCH ->
          new NcclInvalidUsageException(function, Result.INVALID_USAGE.code(), text, "");
      case TIMEOUT ->
          missing.get(observer)
              ? remote(function, "rank " + rank + " gave up waiting for this rank: " + text)
              : new NcclTimeoutException(function, Result.TIMEOUT.code(), text, "");
      case RANK_FAILED -> remote(function, "rank " + rank + " failed: " + text);
      case NONSENSE -> remote(function, text);
    };
  }

  static NcclRemoteException remote(String function, String text) {
    return new NcclRemoteException(function, Result.REMOTE_ERROR.code(), text, "");
  }
}
