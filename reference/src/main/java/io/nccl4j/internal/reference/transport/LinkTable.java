package io.nccl4j.internal.reference.transport;

import java.io.IOException;
import java.net.ProtocolException;
import java.nio.channels.SocketChannel;
import java.util.BitSet;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

/** The links of a communicator's ranks in this process. Each is created on first use. */
public final class LinkTable {
  private final LinkContext context;
  private final SharedMemoryTransport sharedMemory;
  private final ConcurrentHashMap<LinkKey, MemoryLink> memoryLinks = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<LinkKey, TcpSendLink> tcpSendLinks = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<LinkKey, TcpReceiveLink> tcpReceiveLinks =
      new ConcurrentHashMap<>();

  public LinkTable(LinkContext context) {
    this.context = context;
    this.sharedMemory = new SharedMemoryTransport(context, this);
  }

  /** Returns the memory that is shared with other processes of this host. */
  public SharedMemoryTransport sharedMemory() {
    return sharedMemory;
  }

  /** Returns the sending end of a link, for a rank of this process. */
  public SendLink sendLink(Route route, int channel, int from, int to) {
    LinkKey key = new LinkKey(route, channel, from, to);
    if (context.hosts(to)) {
      return memoryLink(key);
    }
    return context.sharesMemoryWith(to) ? sharedMemory.sendLink(key) : tcpSendLink(key);
  }

  /** Returns the sending end of a TCP link, for a rank of this process. */
  TcpSendLink tcpSendLink(LinkKey key) {
    return tcpSendLinks.computeIfAbsent(key, k -> new TcpSendLink(context, k));
  }

  /** Returns the receiving end of a link, for a rank of this process. */
  public ReceiveLink receiveLink(Route route, int channel, int from, int to) {
    LinkKey key = new LinkKey(route, channel, from, to);
    if (context.hosts(from)) {
      return memoryLink(key);
    }
    return context.sharesMemoryWith(from) ? sharedMemory.receiveLink(key) : arriving(key);
  }

  private MemoryLink memoryLink(LinkKey key) {
    return memoryLinks.computeIfAbsent(key, k -> new MemoryLink(context, k.from(), k.to()));
  }

  /** Returns the receiving end of a TCP link, for a rank of this process. */
  public TcpReceiveLink arriving(LinkKey key) {
    return tcpReceiveLinks.computeIfAbsent(key, k -> new TcpReceiveLink(context, k));
  }

  /** Returns the TCP links over which a rank of this process has sent to any of the ranks. */
  public List<TcpSendLink> sentBy(int rank, BitSet to) {
    return tcpSendLinks.values().stream()
        .filter(link -> link.key().from() == rank && to.get(link.key().to()))
        .toList();
  }

  /** Records how many slices have been sent over a link whose sender has closed. */
  public void expect(LinkKey key, long slices) throws ProtocolException {
    checkKey(key);
    arriving(key).expect(slices);
  }

  /**
   * Accepts the connection of a link.
   *
   * @param channel returns the connection; called after the key is validated
   * @throws ProtocolException if the key is invalid, or the link is already connected
   */
  public void admit(LinkKey key, Supplier<SocketChannel> channel) throws IOException {
    checkKey(key);
    if (!arriving(key).offer()) {
      throw new ProtocolException(key + " is already connected");
    }
    arriving(key).connected(channel.get());
    context.wake(key.to());
  }

  /** Accepts the shared memory that another process has created for a link. */
  public void admitMemory(LinkKey key, String path) throws ProtocolException {
    checkKey(key);
    sharedMemory.receive(key, path);
    context.wake(key.to());
  }

  /** Makes a link use TCP, since its receiver cannot open the shared memory. */
  public void refuseMemory(LinkKey key, String why) throws ProtocolException {
    if (!isRank(key.from()) || !context.hosts(key.from())) {
      throw new ProtocolException(key + " does not lead from this process");
    }
    sharedMemory.refuse(key, why);
    context.wake(key.from());
  }

  /** Throws if a link is not from another process to this one. */
  private void checkKey(LinkKey key) throws ProtocolException {
    if (!isRank(key.from())
        || !isRank(key.to())
        || context.hosts(key.from())
        || !context.hosts(key.to())) {
      throw new ProtocolException(key + " does not lead to this process");
    }
  }

  private boolean isRank(int rank) {
    return rank >= 0 && rank < context.size();
  }

  /** Closes all connections and releases the shared memory. */
  public void close() {
    tcpSendLinks.values().forEach(TcpSendLink::close);
    tcpReceiveLinks.values().forEach(TcpReceiveLink::close);
    sharedMemory.end();
  }
}
