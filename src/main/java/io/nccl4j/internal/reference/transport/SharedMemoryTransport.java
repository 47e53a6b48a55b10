package io.nccl4j.internal.reference.transport;

import io.nccl4j.NcclSystemException;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import java.lang.foreign.Arena;
import java.net.ProtocolException;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.logging.log4j.LogManager;

/**
 * What a world shares of its host's memory with other processes: links, and the board where all
 * ranks are on one host. Each is had when it is first used, and given back when the world ends.
 *
 * <p>One process makes a file and tells the other by name, over their control connection; the
 * thread of the other's site maps it at once and deletes the name. So a name is there for a moment
 * only; {@link SharedMemoryFiles} deletes what processes leave that are killed in that moment.
 */
public final class SharedMemoryTransport {
  /** How long a world's end waits for the other processes to take what it has last made. */
  private static final Duration LONGEST_TAKING = Duration.ofSeconds(2);

  /** How many slices of a link are under way at a time. */
  static final int SLOTS = 4;

  private final LinkContext context;
  private final LinkTable links;
  private final ConcurrentHashMap<LinkKey, SameHostSendLink> leaving = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<LinkKey, SameHostReceiveLink> arriving =
      new ConcurrentHashMap<>();
  private final List<SharedMemoryLink> made = new ArrayList<>();
  private Arena arena;
  private SharedMemorySync sync;
  private RuntimeException boardFailure;
  private boolean lost;
  private boolean ended;

  SharedMemoryTransport(LinkContext context, LinkTable links) {
    this.context = context;
    this.links = links;
  }

  /** Returns the end of a link that a rank of this process sends by. */
  SameHostSendLink sendLink(LinkKey key) {
    return leaving.computeIfAbsent(
        key, k -> new SameHostSendLink(() -> choose(k), context.sliceBytes()));
  }

  /** Returns the end of a link that a rank of this process receives by. */
  SameHostReceiveLink receiveLink(LinkKey key) {
    return arriving.computeIfAbsent(key, k -> new SameHostReceiveLink(links.arriving(k)));
  }

  private SendLink choose(LinkKey key) {
    SharedMemoryLink memory = make(key);
    return memory == null ? links.overTcp(key) : memory;
  }

  /** Makes the memory of a link and tells the receiver; returns null where none can be had. */
  private synchronized SharedMemoryLink make(LinkKey key) {
    Arena mappings = arena();
    int slotBytes = context.sliceBytes();
    Path directory = SharedMemory.directory(SharedMemoryLink.size(SLOTS, slotBytes));
    SharedMemoryLink link;
    try {
      link = SharedMemoryLink.create(directory, mappings, SLOTS, slotBytes, key.from(), key.to());
    } catch (NcclSystemException e) {
      LogManager.getLogger(SharedMemoryTransport.class).warn("{} goes over TCP: {}", key, e.text());
      return null;
    }
    made.add(link);
    context.announceMemory(key, link.path());
    return link;
  }

  /**
   * Event loop: takes the memory that another process has made for a link.
   *
   * @throws ProtocolException if it is no such memory
   */
  void receive(LinkKey key, String path) throws ProtocolException {
    Path file = file(path);
    if (!context.sharesMemoryWith(key.from())) {
      throw new ProtocolException(key + " is between processes that share no memory");
    }
    SameHostReceiveLink link = receiveLink(key);
    link.offer();
    try {
      link.open(SharedMemoryLink.open(file, arena(), key.from(), key.to(), key.to()));
    } catch (ProtocolViolationException e) {
      throw new ProtocolException(e.what());
    } catch (NcclSystemException e) {
      link.fail(e);
    }
  }

  /** Returns a file that is one of ours by its name, since it is going to be deleted. */
  private static Path file(String path) throws ProtocolException {
    try {
      Path file = Path.of(path);
      if (file.isAbsolute() && SharedMemoryFiles.hasName(file)) {
        return file;
      }
    } catch (InvalidPathException e) {
      throw new ProtocolException("it says that it shares " + e.getMessage());
    }
    throw new ProtocolException("it says that it shares " + path);
  }

  /** Returns the board of all ranks; null while the process of rank 0 has not made it. */
  public synchronized SharedMemorySync sync() {
    if (boardFailure != null) {
      throw boardFailure;
    }
    if (sync == null && !ended && context.hosts(0)) {
      sync = SharedMemorySync.create(context.size(), context.processes(), arena());
      context.announceSync(sync.path());
    }
    return sync;
  }

  /**
   * Event loop: takes the board that the process of rank 0 has made.
   *
   * @throws ProtocolException if it is none
   */
  public synchronized void receiveSync(String path) throws ProtocolException {
    Path file = file(path);
    if (!context.allShareMemory() || sync != null) {
      throw new ProtocolException("it has made a board that nobody needs");
    }
    try {
      sync = SharedMemorySync.open(file, context.size(), context.processes(), 0, arena());
    } catch (ProtocolViolationException e) {
      throw new ProtocolException(e.what());
    } catch (NcclSystemException e) {
      boardFailure = e;
    }
  }

  @SuppressWarnings("MustBeClosedChecker") // Closed with the last rank.
  private synchronized Arena arena() {
    if (ended) {
      throw new IllegalStateException("the communicator has ended");
    }
    if (arena == null) {
      // Streams' threads use it, and whichever thread closes the last rank gives it back.
      arena = Arena.ofShared();
    }
    return arena;
  }

  /** Takes away the names of links to a process that has gone, which will not do so itself. */
  public synchronized void lost(BitSet ranks) {
    lost = true;
    made.stream().filter(link -> ranks.get(link.to())).forEach(SharedMemoryLink::discard);
  }

  /**
   * Waits until the receivers have the memory of all links, since what was sent before the end is
   * to arrive; not for those who have gone, and not for long.
   */
  public void settle() {
    Deadline deadline = Deadline.after(LONGEST_TAKING);
    made().forEach(link -> Interrupts.awaitUninterruptibly(() -> awaitTaken(link, deadline)));
  }

  private void awaitTaken(SharedMemoryLink link, Deadline deadline) throws InterruptedException {
    while (!link.taken()
        && !context.presence(link.to()).left()
        && !context.presence(link.source()).cut()
        && !deadline.passed()) {
      TimeUnit.MICROSECONDS.sleep(100);
    }
  }

  /** Returns the links that this process has made the memory of. */
  public synchronized List<SharedMemoryLink> made() {
    return List.copyOf(made);
  }

  /** Gives the memory back; a thread that still uses it gets an exception. Idempotent. */
  void end() {
    if (release()) {
      SharedMemoryFiles.sweep();
    }
  }

  /** Returns whether a process was lost, which may have made files that nobody knows. */
  private synchronized boolean release() {
    if (ended) {
      return false;
    }
    ended = true;
    made.forEach(SharedMemoryLink::discard);
    if (sync != null && context.hosts(0)) {
      sync.discard();
    }
    if (arena != null) {
      arena.close();
    }
    return lost;
  }
}
