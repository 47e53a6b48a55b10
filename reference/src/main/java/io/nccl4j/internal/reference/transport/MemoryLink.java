package io.nccl4j.internal.reference.transport;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * A link between two ranks of one process. It transfers the location of a slice, not its contents:
 * the receiver reads the sender's memory.
 *
 * <p>Invariant: {@code released <= sent <= released + SLOTS}; only the sender writes {@code sent},
 * and only the receiver writes {@code released}.
 */
public final class MemoryLink implements SendLink, ReceiveLink {
  private static final int SLOTS = 4;

  private record Slice(MemorySegment memory, long offset, long bytes, long signature) {}

  private final Slice[] slices = new Slice[SLOTS];
  private final LinkContext context;
  private final int sender;
  private final int receiver;
  // Allocated by the first claim, since most links send their rank's buffers.
  private MemorySegment own;
  private volatile long sent;
  private volatile long released;

  MemoryLink(LinkContext context, int sender, int receiver) {
    this.context = context;
    this.sender = sender;
    this.receiver = receiver;
  }

  @Override
  public int source() {
    return sender;
  }

  @Override
  public long sent() {
    return sent;
  }

  @Override
  public boolean hasRoom() {
    return sent - released < SLOTS;
  }

  @Override
  public MemorySegment claim() {
    if (own == null) {
      own = Arena.ofAuto().allocate((long) SLOTS * context.sliceBytes(), 64);
    }
    return own;
  }

  @Override
  public long claimed() {
    return (long) slot(sent) * context.sliceBytes();
  }

  @Override
  @SuppressWarnings("NonAtomicVolatileUpdate") // Only the sender writes it.
  public void send(MemorySegment memory, long offset, long bytes, long signature) {
    slices[slot(sent)] = new Slice(memory, offset, bytes, signature);
    sent++;
    context.wake(receiver);
  }

  private static int slot(long number) {
    return (int) (number % SLOTS);
  }

  @Override
  public boolean drained() {
    return sent == released;
  }

  @Override
  public boolean ready() {
    return sent != released;
  }

  private Slice first() {
    return slices[slot(released)];
  }

  @Override
  public boolean exhausted() {
    return context.presence(sender).gone() && !ready();
  }

  @Override
  public MemorySegment memory() {
    return first().memory;
  }

  @Override
  public long offset() {
    return first().offset;
  }

  @Override
  public long bytes() {
    return first().bytes;
  }

  @Override
  public long signature() {
    return first().signature;
  }

  @Override
  @SuppressWarnings("NonAtomicVolatileUpdate") // Only the receiver writes it.
  public void release() {
    // Keeps no memory of the sender reachable after its operation.
    slices[slot(released)] = null;
    released++;
    context.wake(sender);
  }
}
