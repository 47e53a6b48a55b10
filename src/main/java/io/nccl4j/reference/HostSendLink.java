package io.nccl4j.reference;

import java.lang.foreign.MemorySegment;

/**
 * The sending end of a link to another process of this host. Whether it goes through shared memory,
 * or over TCP where there is no room for that, is found when the first slice is to be sent.
 */
final class HostSendLink implements SendLink {
  private final World world;
  private final World.LinkKey key;
  private SendLink link;

  HostSendLink(World world, World.LinkKey key) {
    this.world = world;
    this.key = key;
  }

  /** Returns what it goes by; null while nothing has been sent. */
  SendLink link() {
    return link;
  }

  private SendLink choose() {
    SharedMemoryLink memory = world.hostMemory().make(key);
    return memory == null ? world.overTcp(key) : memory;
  }

  @Override
  public int slots() {
    return HostMemory.SLOTS;
  }

  @Override
  public long mostBytes() {
    return world.options().sliceBytes();
  }

  @Override
  public boolean hasRoom() {
    if (link == null) {
      link = choose();
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
