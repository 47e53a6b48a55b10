package io.nccl4j.internal.reference.transport;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * A link between two ranks of one process. It transfers the location of a slice, not its contents:
 * the receiver reads the sender's memory.
 *
 * <p>Invariant: {@code released <= sent <= released + SLOTS}; only the sender writes {@code sent},
 * and only the receiver writes {@code released}, each on its own cache lines.
 */
public final class MemoryLink implements SendLink, ReceiveLink {
  static final int SLOTS = 8;

  private static final VarHandle COUNT = MethodHandles.arrayElementVarHandle(long[].class);
  private static final int SENT = 16;
  private static final int CACHED_RELEASED = 17;
  private static final int RELEASED = 48;
  private static final int CACHED_SENT = 49;

  private final long[] counts = new long[80];
  private final MemorySegment[] memory = new MemorySegment[SLOTS];
  private final long[] offsets = new long[SLOTS];
  private final long[] bytes = new long[SLOTS];
  private final long[] signatures = new long[SLOTS];
  private final LinkContext context;
  private final int sender;
  private final int receiver;

  MemoryLink(LinkContext context, int sender, int receiver) {
    this.context = context;
    this.sender = sender;
    this.receiver = receiver;
  }

  @Override
  public int slots() {
    return SLOTS;
  }

  @Override
  public int source() {
    return sender;
  }

  @Override
  public long sent() {
    return counts[SENT];
  }

  @Override
  public boolean hasRoom() {
    long sent = counts[SENT];
    if (sent - counts[CACHED_RELEASED] < SLOTS) {
      return true;
    }
    long released = (long) COUNT.getAcquire(counts, RELEASED);
    counts[CACHED_RELEASED] = released;
    return sent - released < SLOTS;
  }

  @Override
  public void send(MemorySegment slice, long offset, long size, long signature) {
    long sent = counts[SENT];
    int slot = (int) sent & (SLOTS - 1);
    memory[slot] = slice;
    offsets[slot] = offset;
    bytes[slot] = size;
    signatures[slot] = signature;
    COUNT.setRelease(counts, SENT, sent + 1);
    context.wake(receiver);
  }

  @Override
  public boolean drained() {
    return (long) COUNT.getAcquire(counts, RELEASED) == counts[SENT];
  }

  @Override
  public boolean ready() {
    long released = counts[RELEASED];
    if (counts[CACHED_SENT] != released) {
      return true;
    }
    long sent = (long) COUNT.getAcquire(counts, SENT);
    counts[CACHED_SENT] = sent;
    return sent != released;
  }

  private int first() {
    return (int) counts[RELEASED] & (SLOTS - 1);
  }

  @Override
  public boolean exhausted() {
    return context.presence(sender).gone() && !ready();
  }

  @Override
  public MemorySegment memory() {
    return memory[first()];
  }

  @Override
  public long offset() {
    return offsets[first()];
  }

  @Override
  public long bytes() {
    return bytes[first()];
  }

  @Override
  public long signature() {
    return signatures[first()];
  }

  @Override
  public void release() {
    // Keeps no memory of the sender reachable after its operation.
    memory[first()] = null;
    COUNT.setRelease(counts, RELEASED, counts[RELEASED] + 1);
    context.wake(sender);
  }
}
