package io.nccl4j.internal.reference.transport;

import io.nccl4j.NcclSystemException;
import java.lang.foreign.Arena;
import java.net.ProtocolException;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.BitSet;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The links of a communicator through memory that it shares with other processes of this host. Each
 * is allocated when it is first used, and released when the communicator ends.
 *
 * <p>One process creates a file and announces its path to the other over their control connection;
 * the event loop of the other maps the file immediately and unlinks it, or refuses the memory if it
 * cannot open the file. The memory is used once it has been opened. So a file name exists only
 * briefly; {@link SharedMemoryFiles} deletes the files of processes that are killed in that time.
 */
public final class SharedMemoryTransport {
  /** The maximum number of slices of a link that are in flight. */
  static final int SLOTS = 4;

  private final LinkContext context;
  private final LinkTable links;
  private final ConcurrentHashMap<LinkKey, SameHostSendLink> sendLinks = new ConcurrentHashMap<>();
  private final ConcurrentHashMap<LinkKey, SameHostReceiveLink> receiveLinks =
      new ConcurrentHashMap<>();
  // The links that this process has created; those that were refused are not used.
  private final Map<LinkKey, SharedMemoryLink> created = new LinkedHashMap<>();
  private final Map<LinkKey, String> refused = new HashMap<>();
  private Arena arena;
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

  /** Returns the link to use, or null until the receiver has opened or refused the memory. */
  private synchronized SendLink choose(LinkKey key) {
    SharedMemoryLink memory = created.get(key);
    if (memory == null && !refused.containsKey(key)) {
      memory = create(key);
    }
    String why = refused.get(key);
    if (why != null) {
      context.warn(key + " uses TCP instead of shared memory: " + why);
      return links.tcpSendLink(key);
    }
    return memory.opened() ? memory : null;
  }

  /** Creates a link and announces it to the receiver; refuses it if the memory is unavailable. */
  private SharedMemoryLink create(LinkKey key) {
    Arena mappings = arena();
    int slotBytes = context.sliceBytes();
    Path directory = SharedMemory.directory(SharedMemoryLink.size(SLOTS, slotBytes));
    try {
      SharedMemoryLink link =
          SharedMemoryLink.create(directory, mappings, SLOTS, slotBytes, key.from(), key.to());
      created.put(key, link);
      context.announceMemory(key, link.path());
      return link;
    } catch (NcclSystemException e) {
      refuse(key, e.text());
      return null;
    }
  }

  /**
   * Makes a link of a rank of this process use TCP, unless its memory is in use.
   *
   * @param why why this process or that of the receiver cannot use its memory
   */
  synchronized void refuse(LinkKey key, String why) {
    if (ended) {
      return;
    }
    SharedMemoryLink memory = created.get(key);
    if (memory == null || !memory.opened()) {
      refused.put(key, why);
      if (memory != null) {
        memory.discard();
      }
    }
  }

  /**
   * Event loop: opens the shared memory that another process has created for a link, unless the
   * communicator has ended here meanwhile.
   *
   * @throws ProtocolException if the link, the path or the content of the file is invalid
   */
  synchronized void receive(LinkKey key, String path) throws ProtocolException {
    if (ended) {
      return;
    }
    if (!context.sharesMemoryWith(key.from())) {
      throw new ProtocolException(key + " connects processes that do not share memory");
    }
    try {
      SharedMemoryLink memory =
          SharedMemoryLink.open(file(path), arena(), key.from(), key.to(), key.to());
      receiveLink(key).open(memory);
    } catch (ProtocolViolationException e) {
      throw new ProtocolException(e.what());
    } catch (NcclSystemException e) {
      context.refuseMemory(key, e.text());
    }
  }

  /**
   * Returns the path after checking that it is a name of ours, since the file will be deleted.
   *
   * @throws NcclSystemException if it is not a path in the locale of this process
   */
  private static Path file(String path) throws ProtocolException {
    try {
      Path file = Path.of(path);
      if (file.isAbsolute() && SharedMemoryFiles.hasName(file)) {
        return file;
      }
    } catch (InvalidPathException e) {
      throw SharedMemory.failed("the shared memory " + path + " cannot be opened: " + e, e);
    }
    throw new ProtocolException("it announced an invalid shared-memory file: " + path);
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
    made().stream().filter(link -> ranks.get(link.to())).forEach(SharedMemoryLink::discard);
  }

  /** Returns the links that this process has created. */
  public synchronized List<SharedMemoryLink> made() {
    return List.copyOf(created.values());
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
    created.values().forEach(SharedMemoryLink::discard);
    if (arena != null) {
      arena.close();
    }
    return lost;
  }
}
