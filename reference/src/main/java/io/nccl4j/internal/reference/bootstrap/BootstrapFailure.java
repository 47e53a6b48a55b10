package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.NcclException;
import io.nccl4j.NcclResult;
import io.nccl4j.internal.util.RankSets;
import io.nccl4j.spi.Contract;
import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.util.BitSet;

/**
 * Why a bootstrap has failed, the same on all its ranks.
 *
 * @param text the description, for messages
 * @param failed the ranks that have failed or left
 * @param missing the ranks that had not responded when a rank timed out; else empty
 * @param mismatch whether the ranks called differently
 */
public record BootstrapFailure(String text, BitSet failed, BitSet missing, boolean mismatch) {
  /** Returns a failure that concerns no particular rank. */
  public static BootstrapFailure of(String text) {
    return new BootstrapFailure(text, new BitSet(), new BitSet(), false);
  }

  /** Returns the failure of one rank. */
  public static BootstrapFailure of(String text, int failed) {
    return of(text, RankSets.of(failed));
  }

  public static BootstrapFailure of(String text, BitSet failed) {
    return new BootstrapFailure(text, failed, new BitSet(), false);
  }

  public static BootstrapFailure read(DataInput in) throws IOException {
    String text = in.readUTF();
    return new BootstrapFailure(text, Message.readBits(in), Message.readBits(in), in.readBoolean());
  }

  public void write(DataOutput out) throws IOException {
    Message.writeReason(out, text);
    Message.writeBits(out, failed);
    Message.writeBits(out, missing);
    out.writeBoolean(mismatch);
  }

  /** Returns the exception that a rank throws, without details. */
  NcclException seenBy(int rank, String function) {
    if (mismatch) {
      return Contract.get().failure(function, NcclResult.INVALID_USAGE.code(), text, "");
    }
    return missing.isEmpty() || missing.get(rank)
        ? Contract.get().failure(function, NcclResult.REMOTE_ERROR.code(), text, "")
        : Contract.get().failure(function, NcclResult.TIMEOUT.code(), text, "");
  }
}
