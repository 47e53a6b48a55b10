package io.nccl4j.internal.reference.transport;

import java.lang.foreign.MemorySegment;
import java.util.function.Supplier;

/**
 * The sending end of a link to another process of this host. Whether it goes through shared memory,
 * or over TCP where there is no room for that, is found when the first slice is to be sent.
 */
public final class SameHostSendLink implements SendLink {
  private final Supplier<SendLink> choice;
  private final int mostBytes;
  private SendLink link;

  /**
   * Makes the sending end of a link.
   *
   * @param choice returns what it goes by, when the first slice is to be sent
   */
  SameHostSendLink(Supplier<SendLink> choice, int mostBytes) {
    this.choice = choice;
    this.mostBytes = mostBytes;
  }

  /** Returns what it goes by; null while nothing has been sent. */
  public SendLink link() {
    return link;
  }

  @Override
  public int slots() {
    return SharedMemoryTransport.SLOTS;
  }

  @Override
  public long mostBytes() {
    return mostBytes;
  }

  @Override
  public boolean hasRoom() {
    if (link == null) {
      link = choice.get();
    }
    return link.hasRoom();
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
