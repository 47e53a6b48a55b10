package io.nccl4j.internal.reference.transport;

import java.lang.foreign.MemorySegment;
import java.net.ProtocolException;

/**
 * The receiving end of a link from another process of this host. It uses shared memory once the
 * sender has announced it, and TCP otherwise.
 */
public final class SameHostReceiveLink implements ReceiveLink {
  private final TcpReceiveLink tcp;
  private volatile ReceiveLink link;

  SameHostReceiveLink(TcpReceiveLink tcp) {
    this.tcp = tcp;
    this.link = tcp;
  }

  /** Returns the link in use: shared memory or TCP. */
  public ReceiveLink link() {
    return link;
  }

  /**
   * Event loop: switches to the memory that the sender has created, unless the sender has connected
   * over TCP.
   *
   * @throws ProtocolException if the sender is already connected
   */
  void open(SharedMemoryLink memory) throws ProtocolException {
    if (!tcp.offer()) {
      throw new ProtocolException("its link is already connected");
    }
    link = memory;
  }

  @Override
  public int source() {
    return link.source();
  }

  @Override
  public boolean ready() {
    return link.ready();
  }

  @Override
  public MemorySegment memory() {
    return link.memory();
  }

  @Override
  public long offset() {
    return link.offset();
  }

  @Override
  public long bytes() {
    return link.bytes();
  }

  @Override
  public long signature() {
    return link.signature();
  }

  @Override
  public boolean exhausted() {
    return link.exhausted();
  }

  @Override
  public void release() {
    link.release();
  }
}
