package io.nccl4j.internal.reference.bootstrap;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.net.ProtocolException;
import java.util.BitSet;
import java.util.List;

/**
 * Identifies the n-th split, shrink or grow of a communicator, the same on every rank. Each rank
 * counts its calls per function and set of excluded ranks.
 *
 * @param function the function that the ranks call
 * @param excluded the ranks that do not take part
 * @param number the number of earlier calls with the same function and excluded ranks
 */
public record BootstrapKey(String function, BitSet excluded, long number) {
  public static final String SPLIT = "split";
  public static final String SHRINK = "shrink";
  public static final String GROW = "grow";

  private static final List<String> FUNCTIONS = List.of(SPLIT, SHRINK, GROW);

  public static BootstrapKey read(DataInput in) throws IOException {
    int function = in.readUnsignedByte();
    if (function >= FUNCTIONS.size()) {
      throw new ProtocolException("there is no bootstrap function " + function);
    }
    return new BootstrapKey(FUNCTIONS.get(function), Message.readBits(in), in.readLong());
  }

  public void write(DataOutput out) throws IOException {
    out.writeByte(FUNCTIONS.indexOf(function));
    Message.writeBits(out, excluded);
    out.writeLong(number);
  }
}
