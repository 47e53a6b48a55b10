package io.nccl4j.internal.reference.rank;

import io.nccl4j.internal.reference.collective.Call;
import io.nccl4j.internal.reference.transport.Presence;
import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.net.ProtocolException;

/**
 * What the ranks of a world may know of one of them: whether it is there, and the collectives that
 * it has entered last. A rank of this process writes it itself; of a rank of another process it is
 * what that process has told last.
 *
 * <p>A collective's numbers are written before the count says so, and overwritten only {@link
 * #KEPT} collectives later: what was read of collective n is of n if {@code entered} was less than
 * {@code n + KEPT - 1} afterwards.
 */
public final class RankState {
  private static final VarHandle ENTERED = field("entered", long.class);
  private static final VarHandle PASSED = field("passed", long.class);
  private static final VarHandle ALONE = field("alone", boolean.class);

  /** How many collectives are remembered, a power of two. */
  private static final int KEPT = 8;

  private final int rank;
  private final int[] shapes = new int[KEPT];
  private final long[] counts = new long[KEPT];
  private final int[] roots = new int[KEPT];
  private volatile Presence presence = Presence.HERE;
  private volatile String loss;
  private volatile long entered;
  private volatile long passed;
  private volatile boolean alone;

  public RankState(int rank) {
    this.rank = rank;
  }

  private static VarHandle field(String name, Class<?> type) {
    try {
      return MethodHandles.lookup().findVarHandle(RankState.class, name, type);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  int rank() {
    return rank;
  }

  public Presence presence() {
    return presence;
  }

  public void setPresence(Presence next) {
    presence = next;
  }

  /** Notes that its process cannot be reached any more, unless the rank had left before. */
  void markLost(String how) {
    if (!presence.left()) {
      loss = how;
      presence = Presence.LOST;
    }
  }

  /**
   * Enters a collective. Others may hear of it a moment later: they ask only when they have waited,
   * and ask again.
   *
   * @param withoutMessages whether this rank can do nothing else until the collective is done
   */
  void enter(Call call, boolean withoutMessages) {
    int slot = slot(entered + 1);
    shapes[slot] = call.shape();
    counts[slot] = call.count;
    roots[slot] = call.peer;
    // Whose turn it is writes alone.
    ALONE.setRelease(this, withoutMessages);
    ENTERED.setRelease(this, entered + 1);
  }

  private static int slot(long number) {
    return (int) number & (KEPT - 1);
  }

  void pass() {
    PASSED.setRelease(this, passed + 1);
  }

  /** Returns the number of the collective that this rank has entered last. */
  long entered() {
    return entered;
  }

  /** Returns the number of the collective that this rank has done last. */
  long passed() {
    return passed;
  }

  /**
   * Returns what this rank called as a collective that the other one has entered last, if that is
   * something else, in words; null if it is the same, or nobody knows.
   */
  public synchronized String otherThan(RankState other) {
    long number = other.entered;
    int slot = slot(number);
    if (entered < number) {
      return null;
    }
    int shape = shapes[slot];
    long count = counts[slot];
    int root = roots[slot];
    boolean kept = entered < number + KEPT - 1;
    boolean same =
        shape == other.shapes[slot] && count == other.counts[slot] && root == other.roots[slot];
    return same || !kept ? null : Call.describe(shape, count, root);
  }

  /** Returns whether the rank can do nothing else until its collective is done. */
  boolean alone() {
    return alone;
  }

  /** Says how the rank has gone. */
  String departure() {
    return "rank "
        + rank
        + switch (presence) {
          case ABORTED -> " aborted its communicator";
          case REVOKED -> " ended its operations";
          case LOST -> " is lost: " + loss;
          default -> " closed its communicator";
        };
  }

  /** Says which collective the rank has entered last. */
  public String describeCollective() {
    int slot = slot(entered);
    return Call.describe(shapes[slot], counts[slot], roots[slot]);
  }

  @SuppressWarnings("EnumOrdinal") // Both ends are of one version of the protocol.
  public void write(DataOutput out) throws IOException {
    out.writeByte(presence.ordinal());
    out.writeBoolean(alone);
    out.writeLong(entered);
    out.writeLong(passed);
    for (int slot = 0; slot < KEPT; slot++) {
      out.writeInt(shapes[slot]);
      out.writeLong(counts[slot]);
      out.writeInt(roots[slot]);
    }
  }

  /** Takes what the rank's process tells; returns whether the rank's presence is another now. */
  @SuppressWarnings("EnumOrdinal") // Both ends are of one version of the protocol.
  public synchronized boolean read(DataInput in) throws IOException {
    int code = in.readUnsignedByte();
    boolean nowAlone = in.readBoolean();
    long nowEntered = in.readLong();
    long nowPassed = in.readLong();
    if (code >= Presence.LOST.ordinal()) {
      throw new ProtocolException("it says that rank " + rank + " has presence " + code);
    }
    // What was written first may come last.
    boolean news = nowEntered >= entered && nowPassed >= passed;
    for (int slot = 0; slot < KEPT; slot++) {
      readCall(in, slot, news);
    }
    if (news) {
      alone = nowAlone;
      entered = nowEntered;
      passed = nowPassed;
    }
    boolean another = code > presence.ordinal();
    if (another) {
      presence = Presence.of(code);
    }
    return another;
  }

  private void readCall(DataInput in, int slot, boolean keep) throws IOException {
    int shape = in.readInt();
    long count = in.readLong();
    int root = in.readInt();
    if (!Call.isShape(shape)) {
      throw new ProtocolException("it says that rank %d called 0x%x".formatted(rank, shape));
    }
    if (keep) {
      shapes[slot] = shape;
      counts[slot] = count;
      roots[slot] = root;
    }
  }
}
