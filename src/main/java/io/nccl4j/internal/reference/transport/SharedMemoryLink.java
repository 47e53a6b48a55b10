package io.nccl4j.internal.reference.transport;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;

/**
 * One end of a link between two processes of one host: a ring of slots in memory that both have
 * mapped. The sender copies its slice into a slot, where the receiver reads it.
 *
 * <p>The file has a header, the receiver's count of released slices on cache lines of its own, and
 * the slots. A slot starts with a line that holds its slice's number, size and signature; the
 * number is written last, with release, so that a small slice costs the receiver one line more than
 * its bytes. Slices are numbered from 1 on, and number {@code n} lies in slot {@code (n - 1) %
 * slots}.
 *
 * <p>Nothing that the other process writes is trusted: a number, a count or a size that cannot be
 * is an exception that names the peer.
 */
public final class SharedMemoryLink implements SendLink, ReceiveLink {
  private static final long MAGIC = 0x4C34_6C63_636E_0001L;
  private static final long TAKEN = 32;
  private static final long RELEASED = SharedMemory.APART;
  private static final long FIRST_SLOT = 2 * SharedMemory.APART;

  // Of a slot.
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

  // The slot of the next slice that is sent or received here; a link end does one of both.
  private long slot = FIRST_SLOT;
  private long sent;
  private long released;
  private boolean here;
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
   * Makes a link's file and one of its ends; the process of the other rank opens {@link #path}.
   *
   * @param arena what the mapping belongs to; shared, since whoever closes it is another thread
   *     than the one that sends or receives
   * @param slots how many slices can be under way; 1 or more
   * @param slotBytes the size of the largest slice; 1 or more
   * @throws io.nccl4j.NcclSystemException if there is no room, or no file can be made
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
   * Opens a link that another process has made, and takes its file's name away: from now on the
   * memory goes when both processes have gone, however they end.
   *
   * @param local which of the two ranks is in this process; messages name the other one
   * @throws io.nccl4j.NcclSystemException if the file cannot be opened
   * @throws ProtocolViolationException if it is no such link
   */
  static SharedMemoryLink open(Path path, Arena arena, int from, int to, int local) {
    MemorySegment shared = SharedMemory.open(path, arena);
    int peer = local == from ? to : from;
    int slots = checkHeader(shared, from, to, peer, path);
    int slotBytes = shared.get(ValueLayout.JAVA_INT, 20);
    SharedMemory.delete(path);
    SharedMemory.COUNT.setRelease(shared, TAKEN, 1L);
    return new SharedMemoryLink(path, shared, slots, slotBytes, from, to);
  }

  private static int checkHeader(MemorySegment shared, int from, int to, int peer, Path path) {
    if (shared.byteSize() < FIRST_SLOT || shared.get(ValueLayout.JAVA_LONG, 0) != MAGIC) {
      throw new ProtocolViolationException(peer, path + " is no link of this release of nccl4j");
    }
    int slots = shared.get(ValueLayout.JAVA_INT, 16);
    int slotBytes = shared.get(ValueLayout.JAVA_INT, 20);
    long told = shared.get(ValueLayout.JAVA_LONG, 8);
    if (slots < 1 || slotBytes < 1 || told != shared.byteSize() || told != size(slots, slotBytes)) {
      throw new ProtocolViolationException(
          peer,
          "%s has %d bytes and says %d, in %d slots of %d"
              .formatted(path, shared.byteSize(), told, slots, slotBytes));
    }
    int fromTold = shared.get(ValueLayout.JAVA_INT, 24);
    int toTold = shared.get(ValueLayout.JAVA_INT, 28);
    if (fromTold != from || toTold != to) {
      throw new ProtocolViolationException(
          peer,
          "%s leads from rank %d to rank %d, not from %d to %d"
              .formatted(path, fromTold, toTold, from, to));
    }
    return slots;
  }

  private static long stride(int slotBytes) {
    return DATA + SharedMemory.lines(slotBytes);
  }

  /** Returns how many bytes a link takes. */
  static long size(int slots, int slotBytes) {
    return FIRST_SLOT + slots * stride(slotBytes);
  }

  /** Returns where the file is, or was before both ends had it. */
  public Path path() {
    return path;
  }

  /** Returns the rank that receives. */
  int to() {
    return to;
  }

  /** Returns whether the other end has come to open it. */
  boolean taken() {
    return (long) SharedMemory.COUNT.getAcquire(shared, TAKEN) != 0;
  }

  /** Takes the file's name away where the other end has not come to open it; idempotent. */
  public void discard() {
    SharedMemory.delete(path);
  }

  @Override
  public int slots() {
    return slots;
  }

  @Override
  public long mostBytes() {
    return slotBytes;
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
          "a slice has " + size + " bytes; this link takes " + slotBytes + " at most");
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

  /** Nothing of the sender's is read any more once it is in a slot. */
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
    return here || arrived();
  }

  private boolean arrived() {
    long due = released + 1;
    long number = (long) SharedMemory.COUNT.getAcquire(shared, slot + NUMBER);
    if (number != due) {
      if (number != Math.max(0, due - slots)) {
        throw new ProtocolViolationException(
            from, "it sent slice " + number + " where " + due + " is due");
      }
      return false;
    }
    bytes = shared.get(ValueLayout.JAVA_LONG, slot + BYTES);
    signature = shared.get(ValueLayout.JAVA_LONG, slot + SIGNATURE);
    if (bytes < 0 || bytes > slotBytes) {
      throw new ProtocolViolationException(
          from, "its slice " + due + " has " + bytes + " bytes, in a slot of " + slotBytes);
    }
    here = true;
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
    here = false;
    released++;
    SharedMemory.COUNT.setRelease(shared, RELEASED, released);
    slot = after(slot);
  }
}
