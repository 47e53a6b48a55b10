package io.nccl4j.internal.reference.bootstrap;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.net.ProtocolException;
import java.util.BitSet;
import java.util.List;
import java.util.Objects;

/**
 * What the ranks of a world meet for: every rank counts its calls of a kind, so that its number-th
 * one is everybody's.
 *
 * @param function what they call
 * @param excluded the ranks that do not come; one kind of occasion for each such set
 * @param number how many of the kind there were before
 */
public record BootstrapKey(String function, BitSet excluded, long number) {
  public static final String SPLIT = "split";
  public static final String SHRINK = "shrink";
  public static final String GROW = "grow";

  private static final List<String> FUNCTIONS = List.of(SPLIT, SHRINK, GROW);

  public static BootstrapKey read(DataInput in) throws IOException {
    int function = in.readUnsignedByte();
    if (function >= FUNCTIONS.size()) {
      throw new ProtocolException("ranks meet for nothing that has number " + function);
    }
    return new BootstrapKey(
        FUNCTIONS.get(function),
        Objects.requireNonNullElseGet(Message.readBits(in), BitSet::new),
        in.readLong());
  }

  public void write(DataOutput out) throws IOException {
    out.writeByte(FUNCTIONS.indexOf(function));
    Message.writeBits(out, excluded);
    out.writeLong(number);
  }
}
