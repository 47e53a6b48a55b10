package io.nccl4j.internal.reference.transport;

import java.io.IOException;
import java.net.ProtocolException;
import java.nio.channels.SocketChannel;
import java.util.BitSet;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

/**
 * The links of the ranks that one process has of a communicator. Each is made when it is first
 * used.
 */
public final class LinkTable {
  private final LinkContext context;
  private final SharedMemoryTransport hostMemory;
  private final ConcurrentHashMap<LinkKey, MemoryLink> links = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<LinkKey, TcpSendLink> leaving = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<LinkKey, TcpReceiveLink> arriving = new ConcurrentHashMap<>();

  public LinkTable(LinkContext context) {
    this.context = context;
    this.hostMemory = new SharedMemoryTransport(context, this);
  }

  /** Returns what the ranks share of their host's memory. */
  public SharedMemoryTransport hostMemory() {
    return hostMemory;
  }

  /** Returns the end of a link that a rank of this process sends by. */
  public SendLink sendLink(Route route, int channel, int from, int to) {
    LinkKey key = new LinkKey(route, channel, from, to);
    if (context.hosts(to)) {
      return memoryLink(key);
    }
    return context.sharesMemoryWith(to) ? hostMemory.sendLink(key) : overTcp(key);
  }

  /** Returns the end of a link over TCP that a rank of this process sends by. */
  TcpSendLink overTcp(LinkKey key) {
    return leaving.computeIfAbsent(key, k -> new TcpSendLink(context, k));
  }

  /** Returns the end of a link that a rank of this process receives by. */
  public ReceiveLink receiveLink(Route route, int channel, int from, int to) {
    LinkKey key = new LinkKey(route, channel, from, to);
    if (context.hosts(from)) {
      return memoryLink(key);
    }
    return context.sharesMemoryWith(from) ? hostMemory.receiveLink(key) : arriving(key);
  }

  private MemoryLink memoryLink(LinkKey key) {
    return links.computeIfAbsent(key, k -> new MemoryLink(context, k.from(), k.to()));
  }

  /** Returns the end of a link over TCP that a rank of this process receives by. */
  public TcpReceiveLink arriving(LinkKey key) {
    return arriving.computeIfAbsent(key, k -> new TcpReceiveLink(context, k));
  }

  /** Returns the links over TCP that a rank of this process has sent by to some ranks. */
  public List<TcpSendLink> sentBy(int rank, BitSet to) {
    return leaving.values().stream()
        .filter(link -> link.key().from() == rank && to.get(link.key().to()))
        .toList();
  }

  /** Notes how many slices have been sent over a link whose sender has closed. */
  public void expect(LinkKey key, long slices) throws ProtocolException {
    checkKey(key);
    arriving(key).expect(slices);
  }

  /**
   * Takes the connection of a link.
   *
   * @param channel returns the connection, once it is known to be that of a link
   * @throws ProtocolException if it is not, or the link is connected already
   */
  public void admit(LinkKey key, Supplier<SocketChannel> channel) throws IOException {
    checkKey(key);
    if (!arriving(key).offer()) {
      throw new ProtocolException(key + " is connected already");
    }
    arriving(key).connected(channel.get());
    context.wake(key.to());
  }

  /** Takes the shared memory that another process has made for a link. */
  public void admitMemory(LinkKey key, String path) throws ProtocolException {
    checkKey(key);
    hostMemory.receive(key, path);
    context.wake(key.to());
  }

  /** Throws if a link does not lead from another process to this one. */
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

  /** Ends all connections and releases the shared memory. */
  public void close() {
    leaving.values().forEach(TcpSendLink::close);
    arriving.values().forEach(TcpReceiveLink::close);
    hostMemory.end();
  }
}
