package io.nccl4j.internal.reference.transport;

import io.nccl4j.NcclSystemException;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.Loggers;
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

/**
 * The memory that a communicator shares with other processes of this host: links, and the sync
 * object if all ranks are on one host. Each is allocated when it is first used, and released when
 * the communicator ends.
 *
 * <p>One process creates a file and announces its path to the other over their control connection;
 * the event loop of the other maps the file immediately and unlinks it. So a file name exists only
 * briefly; {@link SharedMemoryFiles} deletes the files of processes that are killed in that time.
 */
public final class SharedMemoryTransport {
  /** How long the end of a communicator waits for other processes to open the newest links. */
  private static final Duration OPEN_TIMEOUT = Duration.ofSeconds(2);

  /** The maximum number of slices of a link that are in flight. */
  static final int SLOTS = 4;

  private final LinkContext context;
  private final LinkTable links;
  private final ConcurrentHashMap<LinkKey, SameHostSendLink> sendLinks = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<LinkKey, SameHostReceiveLink> receiveLinks =
      new ConcurrentHashMap<>();
  private final List<SharedMemoryLink> created = new ArrayList<>();
  private Arena arena;
  private SharedMemorySync sync;
  private RuntimeException syncFailure;
  private boolean lost;
  private boolean ended;

  SharedMemoryTransport(LinkContext context, LinkTable links) {
    this.context = context;
    this.links = links;
  }

  /** Returns the sending end of a link, for a rank of this process. */
  SameHostSendLink sendLink(LinkKey key) {
    return sendLinks.computeIfAbsent(key, k -> new SameHostSendLink(() -> choose(k)));
  }

  /** Returns the receiving end of a link, for a rank of this process. */
  SameHostReceiveLink receiveLink(LinkKey key) {
    return receiveLinks.computeIfAbsent(key, k -> new SameHostReceiveLink(links.arriving(k)));
  }

  private SendLink choose(LinkKey key) {
    SharedMemoryLink memory = create(key);
    return memory == null ? links.tcpSendLink(key) : memory;
  }

  /** Creates a link and announces it to the receiver; returns null if the memory is unavailable. */
  private synchronized SharedMemoryLink create(LinkKey key) {
    Arena mappings = arena();
    int slotBytes = context.sliceBytes();
    Path directory = SharedMemory.directory(SharedMemoryLink.size(SLOTS, slotBytes));
    SharedMemoryLink link;
    try {
      link = SharedMemoryLink.create(directory, mappings, SLOTS, slotBytes, key.from(), key.to());
    } catch (NcclSystemException e) {
      Loggers.of(SharedMemoryTransport.class)
          .warn("{} uses TCP instead of shared memory: {}", key, e.text());
      return null;
    }
    created.add(link);
    context.announceMemory(key, link.path());
    return link;
  }

  /**
   * Event loop: opens the shared memory that another process has created for a link, unless the
   * communicator has ended here meanwhile.
   *
   * @throws ProtocolException if the link, the path or the content of the file is invalid
   */
  synchronized void receive(LinkKey key, String path) throws ProtocolException {
    Path file = file(path);
    if (ended) {
      return;
    }
    if (!context.sharesMemoryWith(key.from())) {
      throw new ProtocolException(key + " connects processes that do not share memory");
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

  /** Returns the path after checking that it is a name of ours, since the file will be deleted. */
  private static Path file(String path) throws ProtocolException {
    try {
      Path file = Path.of(path);
      if (file.isAbsolute() && SharedMemoryFiles.hasName(file)) {
        return file;
      }
    } catch (InvalidPathException e) {
      throw new ProtocolException("it announced an invalid shared-memory file: " + e.getMessage());
    }
    throw new ProtocolException("it announced an invalid shared-memory file: " + path);
  }

  /** Returns the sync object of all ranks; null until the process of rank 0 has created it. */
  public synchronized SharedMemorySync sync() {
    if (syncFailure != null) {
      throw syncFailure;
    }
    if (sync == null && !ended && context.hosts(0)) {
      sync = SharedMemorySync.create(context.size(), context.processes(), arena());
      context.announceSync(sync.path());
    }
    return sync;
  }

  /**
   * Event loop: opens the sync object that the process of rank 0 has created, unless the
   * communicator has ended here meanwhile.
   *
   * @throws ProtocolException if the file is not a sync object, or none is expected
   */
  public synchronized void receiveSync(String path) throws ProtocolException {
    Path file = file(path);
    if (ended) {
      return;
    }
    if (!context.allShareMemory() || sync != null) {
      throw new ProtocolException("it announced a sync object that is not expected");
    }
    try {
      sync = SharedMemorySync.open(file, context.size(), context.processes(), 0, arena());
    } catch (ProtocolViolationException e) {
      throw new ProtocolException(e.what());
    } catch (NcclSystemException e) {
      syncFailure = e;
    }
  }

  @SuppressWarnings("MustBeClosedChecker") // Closed with the last rank.
  private synchronized Arena arena() {
    if (ended) {
      throw new IllegalStateException("the communicator has ended");
    }
    if (arena == null) {
      // Shared: stream threads use it, and the thread that closes the last rank closes it.
      arena = Arena.ofShared();
    }
    return arena;
  }

  /** Unlinks the files of links to a lost process, which will not do so itself. */
  public synchronized void lost(BitSet ranks) {
    lost = true;
    created.stream().filter(link -> ranks.get(link.to())).forEach(SharedMemoryLink::discard);
  }

  /**
   * Waits until the receivers have opened all links, so that slices sent before the end arrive.
   * Skips receivers that have left, and waits at most {@link #OPEN_TIMEOUT}.
   */
  public void settle() {
    Deadline deadline = Deadline.after(OPEN_TIMEOUT);
    made().forEach(link -> Interrupts.awaitUninterruptibly(() -> awaitOpened(link, deadline)));
  }

  private void awaitOpened(SharedMemoryLink link, Deadline deadline) throws InterruptedException {
    while (!link.opened()
        && !context.presence(link.to()).left()
        && !context.presence(link.source()).cut()
        && !deadline.passed()) {
      TimeUnit.MICROSECONDS.sleep(100);
    }
  }

  /** Returns the links that this process has created. */
  public synchronized List<SharedMemoryLink> made() {
    return List.copyOf(created);
  }

  /** Releases the memory; a thread that still uses it gets an exception. Idempotent. */
  void end() {
    if (release()) {
      SharedMemoryFiles.sweep();
    }
  }

  /** Returns whether a process was lost, which may have left files that it never announced. */
  private synchronized boolean release() {
    if (ended) {
      return false;
    }
    ended = true;
    created.forEach(SharedMemoryLink::discard);
    if (sync != null && context.hosts(0)) {
      sync.discard();
    }
    if (arena != null) {
      arena.close();
    }
    return lost;
  }
}
