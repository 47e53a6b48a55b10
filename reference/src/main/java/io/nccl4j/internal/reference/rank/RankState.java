package io.nccl4j.internal.reference.rank;

import io.nccl4j.Operation;
import io.nccl4j.internal.reference.bootstrap.Message;
import io.nccl4j.internal.reference.collective.Call;
import io.nccl4j.internal.reference.transport.Presence;
import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.net.ProtocolException;
import java.nio.ByteBuffer;
import java.util.BitSet;

/**
 * The state of a rank as the other ranks see it: whether it is present, and the collectives that it
 * entered last. A rank of this process writes its own state; the state of a remote rank is the last
 * one that its process has reported.
 *
 * <p>The last {@link #KEPT} collectives are kept, to find the first that two ranks have called
 * differently. The monitor guards them.
 */
public final class RankState {
  private static final int KEPT = 8;

  private static final int BYTES =
      2 + 2 * Long.BYTES + KEPT * (Integer.BYTES + Long.BYTES + Integer.BYTES) + 1;

  /** Whether a rank is in a shrink. */
  enum ShrinkPhase {
    /** It is in none. */
    NONE,
    PENDING,
    /** It has aborted its operations and has a new communicator without the excluded ranks. */
    DONE;

    private static final ShrinkPhase[] ALL = values();
  }

  /**
   * The last shrink that a rank has called.
   *
   * @param number increases with each change, since an older state may arrive later
   * @param excluded the ranks that it excludes; may be empty
   * @param left the ranks that its process knew to have left at the time of the change
   */
  record Shrink(long number, ShrinkPhase phase, BitSet excluded, BitSet left) {
    boolean pending() {
      return phase == ShrinkPhase.PENDING;
    }
  }

  private final int rank;
  private final int[] shapes = new int[KEPT];
  private final long[] counts = new long[KEPT];
  private final int[] roots = new int[KEPT];
  private volatile Presence presence = Presence.HERE;
  private volatile String loss;
  private volatile Shrink shrink = new Shrink(0, ShrinkPhase.NONE, new BitSet(), new BitSet());
  private volatile long entered;
  private volatile long passed;
  private volatile boolean alone;
  private volatile boolean closing;

  public RankState(int rank) {
    this.rank = rank;
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

  Shrink shrink() {
    return shrink;
  }

  /** Sets the state of this rank's shrink; only its own thread does. */
  void setShrink(ShrinkPhase phase, BitSet excluded, BitSet left) {
    shrink = new Shrink(shrink.number + 1, phase, excluded, left);
  }

  /** Records that the rank's process is unreachable, unless the rank had left before. */
  void markLost(String how) {
    if (!presence.left()) {
      loss = how;
      presence = Presence.LOST;
    }
  }

  /**
   * Enters a collective.
   *
   * @param withoutMessages whether this rank can do nothing else until the collective is done
   */
  @SuppressWarnings("NonAtomicVolatileUpdate") // Guarded by the monitor.
  synchronized void enter(Call call, boolean withoutMessages) {
    int slot = slot(entered + 1);
    shapes[slot] = call.shape();
    counts[slot] = call.count();
    roots[slot] = call.peer();
    alone = withoutMessages;
    entered++;
  }

  private static int slot(long number) {
    return (int) (number % KEPT);
  }

  /** Records that the rank enters no more collectives. */
  void setClosing() {
    closing = true;
  }

  @SuppressWarnings("NonAtomicVolatileUpdate") // Guarded by the monitor.
  synchronized void pass() {
    passed++;
  }

  /** Returns the number of the last collective that this rank has entered. */
  long entered() {
    return entered;
  }

  /** Returns the number of the last collective that this rank has finished. */
  long passed() {
    return passed;
  }

  /**
   * A collective that two ranks have called differently.
   *
   * @param number its number
   * @param operation the operation that this process's rank called
   * @param text the description, for messages
   */
  public record Difference(long number, Operation operation, String text) {}

  /**
   * Compares the collectives that both this rank and a rank of this process have entered, as far
   * back as they are kept; returns the first that differs, or null.
   *
   * @param own the state of the calling thread's rank, which does not change meanwhile
   */
  public synchronized Difference differenceFrom(RankState own) {
    long last = Math.min(entered, own.entered);
    long first = Math.max(1, Math.max(entered, own.entered) - KEPT + 1);
    for (long number = first; number <= last; number++) {
      int slot = slot(number);
      boolean same =
          shapes[slot] == own.shapes[slot]
              && counts[slot] == own.counts[slot]
              && roots[slot] == own.roots[slot];
      if (!same) {
        return new Difference(
            number,
            Call.operation(own.shapes[slot]),
            "collective number %d differs between ranks: rank %d called %s, rank %d called %s"
                .formatted(
                    number,
                    own.rank,
                    Call.describe(own.shapes[slot], own.counts[slot], own.roots[slot]),
                    rank,
                    Call.describe(shapes[slot], counts[slot], roots[slot])));
      }
    }
    return null;
  }

  /**
   * Returns a collective that one rank has finished and the other one has not called and will not
   * call, or null. A rank that only sends in a collective can finish it so.
   *
   * @param own the state of a rank of this process that is about to close
   */
  public synchronized Difference surplus(RankState own) {
    boolean ofOwn = closing && own.passed > entered;
    if (presence.cut() || (!ofOwn && passed <= own.entered)) {
      return null;
    }
    RankState more = ofOwn ? own : this;
    RankState fewer = ofOwn ? this : own;
    long number = Math.max(fewer.entered + 1, more.entered - KEPT + 2);
    int slot = slot(number);
    return new Difference(
        number,
        Call.operation(more.shapes[slot]),
        "collective number %d differs between ranks: rank %d called %s, rank %d called none"
            .formatted(
                number,
                more.rank,
                Call.describe(more.shapes[slot], more.counts[slot], more.roots[slot]),
                fewer.rank));
  }

  /** Returns whether the rank can do nothing else until its collective is done. */
  boolean alone() {
    return alone;
  }

  /** Describes how the rank has left. */
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

  /** Describes the last collective that the rank has entered. */
  public synchronized String describeCollective() {
    int slot = slot(entered);
    return Call.describe(shapes[slot], counts[slot], roots[slot]);
  }

  /**
   * Writes the state of a rank of this process, which may enter collectives meanwhile.
   *
   * @param shown the presence to write, which may be an earlier one
   */
  @SuppressWarnings("EnumOrdinal") // Both sides use the same version of the protocol.
  public void write(DataOutput out, Presence shown) throws IOException {
    ByteBuffer copy = ByteBuffer.allocate(BYTES);
    synchronized (this) {
      copy.put((byte) shown.ordinal()).put((byte) (alone ? 1 : 0));
      copy.putLong(entered).putLong(passed);
      for (int slot = 0; slot < KEPT; slot++) {
        copy.putInt(shapes[slot]).putLong(counts[slot]).putInt(roots[slot]);
      }
      copy.put((byte) (closing ? 1 : 0));
    }
    out.write(copy.array());
    Shrink last = shrink;
    out.writeLong(last.number);
    out.writeByte(last.phase.ordinal());
    Message.writeBits(out, last.excluded);
    Message.writeBits(out, last.left);
  }

  /** Applies the state that the rank's process has sent; returns whether its presence changed. */
  @SuppressWarnings("EnumOrdinal") // Both sides use the same version of the protocol.
  public synchronized boolean read(DataInput in) throws IOException {
    int code = in.readUnsignedByte();
    boolean nowAlone = in.readBoolean();
    long nowEntered = in.readLong();
    long nowPassed = in.readLong();
    if (code >= Presence.LOST.ordinal()) {
      throw new ProtocolException("it reports that rank " + rank + " has presence " + code);
    }
    // An older state may arrive later.
    boolean newer = nowEntered >= entered && nowPassed >= passed;
    for (int slot = 0; slot < KEPT; slot++) {
      readCall(in, slot, newer);
    }
    boolean nowClosing = in.readBoolean();
    if (newer) {
      passed = nowPassed;
      alone = nowAlone;
      entered = nowEntered;
      closing |= nowClosing;
    }
    readShrink(in);
    boolean changed = code > presence.ordinal();
    if (changed) {
      presence = Presence.of(code);
    }
    return changed;
  }

  private void readShrink(DataInput in) throws IOException {
    long number = in.readLong();
    int phase = in.readUnsignedByte();
    BitSet excluded = Message.readBits(in);
    BitSet left = Message.readBits(in);
    if (phase >= ShrinkPhase.ALL.length) {
      throw new ProtocolException("it reports that rank " + rank + " is in no known shrink");
    }
    if (number > shrink.number) {
      shrink = new Shrink(number, ShrinkPhase.ALL[phase], excluded, left);
    }
  }

  private void readCall(DataInput in, int slot, boolean keep) throws IOException {
    int shape = in.readInt();
    long count = in.readLong();
    int root = in.readInt();
    if (!Call.isShape(shape)) {
      throw new ProtocolException("it reports that rank %d called 0x%x".formatted(rank, shape));
    }
    if (keep) {
      shapes[slot] = shape;
      counts[slot] = count;
      roots[slot] = root;
    }
  }
}
