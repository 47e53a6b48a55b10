package io.nccl4j.internal.reference.transport;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;

/**
 * One end of a link between two processes of one host: a ring of slots in memory that both have
 * mapped. The sender copies a slice into a slot, where the receiver reads it.
 *
 * <p>The file has a header, the receiver's count of released slices on separate cache lines, and
 * the slots. A slot starts with a cache line that contains the slice's number, size and signature.
 * The number is written last, with release semantics, so a small slice costs the receiver one cache
 * line more than its bytes. Slices are numbered from 1; slice {@code n} is in slot {@code (n - 1) %
 * slots}.
 *
 * <p>Nothing that the other process writes is trusted: an invalid number, count or size causes an
 * exception that names the peer.
 */
public final class SharedMemoryLink implements SendLink, ReceiveLink {
  private static final long MAGIC = 0x4C34_6C63_636E_0001L;
  private static final long OPENED = 32;
  private static final long RELEASED = SharedMemory.LINE_PAIR_BYTES;
  private static final long FIRST_SLOT = 2 * SharedMemory.LINE_PAIR_BYTES;

  // Offsets in a slot.
  private static final long NUMBER = 0;
  private static final long BYTES = 8;
  private static final long SIGNATURE = 16;
  private static final long DATA = 64;

  private final Path path;
  private final MemorySegment shared;
  private final int slots;
  private final int slotBytes;
  private final long stride;
  private final int from;
  private final int to;

  // The offset of the slot of the next slice that this end sends or receives.
  private long slot = FIRST_SLOT;
  private long sent;
  private long released;
  private boolean available;
  private long bytes;
  private long signature;

  private SharedMemoryLink(
      Path path, MemorySegment shared, int slots, int slotBytes, int from, int to) {
    this.path = path;
    this.shared = shared;
    this.slots = slots;
    this.slotBytes = slotBytes;
    this.stride = stride(slotBytes);
    this.from = from;
    this.to = to;
  }

  /**
   * Creates a link's file and one of its ends; the process of the other rank opens {@link #path}.
   *
   * @param arena the owner of the mapping; shared, since the thread that closes it is not the one
   *     that sends or receives
   * @param slots the number of slices that can be in flight; 1 or more
   * @param slotBytes the maximum size of a slice; 1 or more
   * @throws io.nccl4j.NcclSystemException if the file cannot be created
   */
  public static SharedMemoryLink create(
      Path directory, Arena arena, int slots, int slotBytes, int from, int to) {
    Path path = SharedMemoryFiles.newPath(directory);
    MemorySegment shared = SharedMemory.create(path, size(slots, slotBytes), arena);
    shared.set(ValueLayout.JAVA_LONG, 0, MAGIC);
    shared.set(ValueLayout.JAVA_LONG, 8, shared.byteSize());
    shared.set(ValueLayout.JAVA_INT, 16, slots);
    shared.set(ValueLayout.JAVA_INT, 20, slotBytes);
    shared.set(ValueLayout.JAVA_INT, 24, from);
    shared.set(ValueLayout.JAVA_INT, 28, to);
    return new SharedMemoryLink(path, shared, slots, slotBytes, from, to);
  }

  /**
   * Opens a link that another process has created, and unlinks its file. From then on the memory is
   * freed when both processes have exited, even if they are killed.
   *
   * @param local the rank of the two that is in this process; messages name the other one
   * @throws io.nccl4j.NcclSystemException if the file cannot be opened
   * @throws ProtocolViolationException if the file is not such a link
   */
  static SharedMemoryLink open(Path path, Arena arena, int from, int to, int local) {
    MemorySegment shared = SharedMemory.open(path, arena);
    int peer = local == from ? to : from;
    int slots = checkHeader(shared, from, to, peer, path);
    int slotBytes = shared.get(ValueLayout.JAVA_INT, 20);
    SharedMemory.delete(path);
    SharedMemory.COUNT.setRelease(shared, OPENED, 1L);
    return new SharedMemoryLink(path, shared, slots, slotBytes, from, to);
  }

  private static int checkHeader(MemorySegment shared, int from, int to, int peer, Path path) {
    if (shared.byteSize() < FIRST_SLOT || shared.get(ValueLayout.JAVA_LONG, 0) != MAGIC) {
      throw new ProtocolViolationException(peer, path + " is not a link of this release of nccl4j");
    }
    int slots = shared.get(ValueLayout.JAVA_INT, 16);
    int slotBytes = shared.get(ValueLayout.JAVA_INT, 20);
    long size = shared.get(ValueLayout.JAVA_LONG, 8);
    if (slots < 1 || slotBytes < 1 || size != shared.byteSize() || size != size(slots, slotBytes)) {
      throw new ProtocolViolationException(
          peer,
          "%s has %d bytes; its header says %d, in %d slots of %d"
              .formatted(path, shared.byteSize(), size, slots, slotBytes));
    }
    int actualFrom = shared.get(ValueLayout.JAVA_INT, 24);
    int actualTo = shared.get(ValueLayout.JAVA_INT, 28);
    if (actualFrom != from || actualTo != to) {
      throw new ProtocolViolationException(
          peer,
          "%s leads from rank %d to rank %d, not from %d to %d"
              .formatted(path, actualFrom, actualTo, from, to));
    }
    return slots;
  }

  private static long stride(int slotBytes) {
    return DATA + SharedMemory.lines(slotBytes);
  }

  /** Returns the size of a link's file in bytes. */
  static long size(int slots, int slotBytes) {
    return FIRST_SLOT + slots * stride(slotBytes);
  }

  /** Returns the path of the file, which is unlinked once both ends have opened it. */
  public Path path() {
    return path;
  }

  /** Returns the rank that receives. */
  int to() {
    return to;
  }

  /** Returns whether the other end has opened the file. */
  boolean opened() {
    return (long) SharedMemory.COUNT.getAcquire(shared, OPENED) != 0;
  }

  /** Unlinks the file if the other end has not opened it; idempotent. */
  public void discard() {
    SharedMemory.delete(path);
  }

  @Override
  public long sent() {
    return sent;
  }

  @Override
  public boolean hasRoom() {
    if (sent - released < slots) {
      return true;
    }
    long now = (long) SharedMemory.COUNT.getAcquire(shared, RELEASED);
    if (now < released || now > sent) {
      throw new ProtocolViolationException(
          to, "it released slice " + now + " of " + sent + " after " + released);
    }
    released = now;
    return sent - now < slots;
  }

  @Override
  public MemorySegment claim() {
    return shared;
  }

  @Override
  public long claimed() {
    return slot + DATA;
  }

  @Override
  public void send(MemorySegment memory, long offset, long size, long sign) {
    if (size > slotBytes) {
      throw new IllegalArgumentException(
          "a slice has " + size + " bytes; the maximum of this link is " + slotBytes);
    }
    if (memory != shared) {
      MemorySegment.copy(memory, offset, shared, slot + DATA, size);
    }
    shared.set(ValueLayout.JAVA_LONG, slot + BYTES, size);
    shared.set(ValueLayout.JAVA_LONG, slot + SIGNATURE, sign);
    sent++;
    SharedMemory.COUNT.setRelease(shared, slot + NUMBER, sent);
    slot = after(slot);
  }

  private long after(long current) {
    long next = current + stride;
    return next == FIRST_SLOT + slots * stride ? FIRST_SLOT : next;
  }

  /** Returns true: the receiver reads the slot, never the sender's memory. */
  @Override
  public boolean drained() {
    return true;
  }

  @Override
  public int source() {
    return from;
  }

  @Override
  public boolean ready() {
    return available || arrived();
  }

  private boolean arrived() {
    long due = released + 1;
    long number = (long) SharedMemory.COUNT.getAcquire(shared, slot + NUMBER);
    if (number != due) {
      if (number != Math.max(0, due - slots)) {
        throw new ProtocolViolationException(
            from, "it sent slice " + number + " instead of " + due);
      }
      return false;
    }
    bytes = shared.get(ValueLayout.JAVA_LONG, slot + BYTES);
    signature = shared.get(ValueLayout.JAVA_LONG, slot + SIGNATURE);
    if (bytes < 0 || bytes > slotBytes) {
      throw new ProtocolViolationException(
          from, "its slice " + due + " has " + bytes + " bytes, in a slot of " + slotBytes);
    }
    available = true;
    return true;
  }

  @Override
  public MemorySegment memory() {
    return shared;
  }

  @Override
  public long offset() {
    return slot + DATA;
  }

  @Override
  public long bytes() {
    return bytes;
  }

  @Override
  public long signature() {
    return signature;
  }

  @Override
  public boolean exhausted() {
    return !ready();
  }

  @Override
  public void release() {
    available = false;
    released++;
    SharedMemory.COUNT.setRelease(shared, RELEASED, released);
    slot = after(slot);
  }
}
