package io.nccl4j.internal.reference.transport;

import java.lang.foreign.MemorySegment;
import java.util.function.Supplier;

/**
 * The sending end of a link to another process of this host. The first slice waits for the choice
 * of the transport: shared memory, or TCP if either process cannot use the memory.
 */
public final class SameHostSendLink implements SendLink {
  private final Supplier<SendLink> choice;
  private SendLink link;

  /**
   * Creates the sending end of a link.
   *
   * @param choice returns the link to use, or null while it depends on the other process
   */
  SameHostSendLink(Supplier<SendLink> choice) {
    this.choice = choice;
  }

  /** Returns the link in use: shared memory or TCP; null before the first slice. */
  public SendLink link() {
    return link;
  }

  @Override
  public boolean hasRoom() {
    if (link == null) {
      link = choice.get();
    }
    return link != null && link.hasRoom();
  }

  @Override
  public long sent() {
    return link == null ? 0 : link.sent();
  }

  @Override
  public MemorySegment claim() {
    return link.claim();
  }

  @Override
  public long claimed() {
    return link.claimed();
  }

  @Override
  public void send(MemorySegment memory, long offset, long bytes, long signature) {
    link.send(memory, offset, bytes, signature);
  }

  @Override
  public boolean drained() {
    return link == null || link.drained();
  }
}
