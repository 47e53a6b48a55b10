package io.nccl4j.internal.reference.transport;

import java.lang.foreign.MemorySegment;
import java.net.ProtocolException;

/**
 * The receiving end of a link from another process of this host: through shared memory, once the
 * sender has told of it, or else over TCP.
 */
public final class SameHostReceiveLink implements ReceiveLink {
  private final TcpReceiveLink overTcp;
  private volatile ReceiveLink link;
  private volatile RuntimeException failure;

  SameHostReceiveLink(TcpReceiveLink overTcp) {
    this.overTcp = overTcp;
    this.link = overTcp;
  }

  /** Returns what it goes by. */
  public ReceiveLink link() {
    return link;
  }

  /**
   * Event loop: lets the sender in, as it may be once, by whichever way.
   *
   * @throws ProtocolException if it has come before
   */
  void offer() throws ProtocolException {
    if (!overTcp.offer()) {
      throw new ProtocolException("its link is connected already");
    }
  }

  /** Event loop: takes the memory that the sender has made. */
  void open(SharedMemoryLink memory) {
    link = memory;
  }

  /** Event loop: says why the sender's memory cannot be had, which the receiver is told. */
  void fail(RuntimeException why) {
    failure = why;
  }

  @Override
  public int source() {
    return link.source();
  }

  @Override
  public boolean ready() {
    if (link.ready()) {
      return true;
    }
    if (failure != null) {
      throw failure;
    }
    return false;
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
