package io.nccl4j.internal.reference.rank;

import io.nccl4j.NcclException;
import io.nccl4j.NcclResult;
import io.nccl4j.Operation;
import io.nccl4j.internal.reference.bootstrap.Message;
import io.nccl4j.internal.util.RankSets;
import io.nccl4j.spi.Contract;
import io.nccl4j.spi.FailureDetails;
import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.net.ProtocolException;
import java.util.BitSet;
import java.util.List;

/**
 * The first failure among the ranks of a communicator. Each rank sees it as an exception.
 *
 * @param rank the rank that found it
 * @param kind how the failure is reported to the ranks
 * @param text the description, for messages
 * @param failed the ranks that have failed
 * @param missing the ranks that were missing, for {@link Kind#TIMEOUT}
 * @param operation the operation in which it was found, or null
 * @param sequenceNumber the number of that collective in the communicator, or 0
 */
public record RankFailure(
    int rank,
    Kind kind,
    String text,
    BitSet failed,
    BitSet missing,
    Operation operation,
    long sequenceNumber) {
  public enum Kind {
    /** One rank failed. */
    RANK_FAILED,
    /** Ranks called different operations; every rank sees the same failure. */
    MISMATCH,
    /** Ranks were missing; they see a remote failure, the others a timeout. */
    TIMEOUT,
    /** A rank has left, or its process violated the protocol; every rank sees the same failure. */
    REMOTE;

    private static final Kind[] ALL = values();
  }

  private static final List<Operation> OPERATIONS = List.of(Operation.values());

  /** Returns the failure that the exception of a rank is for the others. */
  public static RankFailure of(int rank, Kind kind, String text, FailureDetails details) {
    return new RankFailure(
        rank,
        kind,
        text,
        RankSets.of(details.failedRanks()),
        RankSets.of(details.missingRanks()),
        details.operation(),
        details.sequenceNumber());
  }

  /** Returns the failure of another process, whose ranks are lost. */
  public static RankFailure protocolViolation(String text, BitSet failed) {
    return new RankFailure(0, Kind.REMOTE, text, failed, new BitSet(), null, 0);
  }

  public static RankFailure read(DataInput in) throws IOException {
    int rank = in.readInt();
    int kind = in.readUnsignedByte();
    if (kind >= Kind.ALL.length) {
      throw new ProtocolException("there is no failure of kind " + kind);
    }
    String text = in.readUTF();
    BitSet failed = Message.readBits(in);
    BitSet missing = Message.readBits(in);
    int operation = in.readUnsignedByte();
    if (operation > OPERATIONS.size()) {
      throw new ProtocolException("a failure names unknown operation " + operation);
    }
    return new RankFailure(
        rank,
        Kind.ALL[kind],
        text,
        failed,
        missing,
        operation == 0 ? null : OPERATIONS.get(operation - 1),
        in.readLong());
  }

  @SuppressWarnings("EnumOrdinal") // Both sides use the same version of the protocol.
  public void write(DataOutput out) throws IOException {
    out.writeInt(rank);
    out.writeByte(kind.ordinal());
    Message.writeReason(out, text);
    Message.writeBits(out, failed);
    Message.writeBits(out, missing);
    out.writeByte(operation == null ? 0 : 1 + operation.ordinal());
    out.writeLong(sequenceNumber);
  }

  /**
   * Returns the exception that a waiting function of a rank throws.
   *
   * @param own the details as that rank knows them
   */
  NcclException seenBy(int observer, String function, FailureDetails own) {
    return Contract.get()
        .initDetails(
            exception(observer, function),
            operation == null ? own : own.in(operation, sequenceNumber));
  }

  private NcclException exception(int observer, String function) {
    return switch (kind) {
      case MISMATCH -> Contract.get().failure(function, NcclResult.INVALID_USAGE.code(), text, "");
      case TIMEOUT ->
          missing.get(observer)
              ? remote(function, "rank " + rank + " gave up waiting for this rank: " + text)
              : Contract.get().failure(function, NcclResult.TIMEOUT.code(), text, "");
      case RANK_FAILED -> remote(function, "rank " + rank + " failed: " + text);
      case REMOTE -> remote(function, text);
    };
  }

  public static NcclException remote(String function, String text) {
    return Contract.get().failure(function, NcclResult.REMOTE_ERROR.code(), text, "");
  }
}
