package io.nccl4j.internal.reference.transport;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;

/**
 * Memory that all ranks of a world on one host share, for {@link SharedMemoryAllReduce}: each rank
 * has a row that it alone writes and all others read. A row tells how many rounds the rank has done
 * of each of three steps since the board was made, holds what it puts in, and what it has folded.
 *
 * <p>The process of rank 0 makes it and tells the others; the last one to come takes the name away.
 */
public final class SharedMemorySync {
  /** How many rounds of one rank are kept at a time. */
  public static final int DEPTH = 2;

  private static final long MAGIC = 0x4234_6C63_636E_0001L;
  private static final int MOST_PART_BYTES = 32 << 10;
  private static final int LEAST_PART_BYTES = 4 << 10;
  private static final int MOST_INPUT_BYTES = 256 << 10;

  private static final long COME = 32;
  private static final long FIRST_ROW = 2 * SharedMemory.APART;

  // Of a row.
  private static final long PUT = 0;
  private static final long FOLDED = 8;
  private static final long TAKEN = 16;
  private static final long SIGNATURES = 32;
  private static final long DATA = SharedMemory.APART;

  private final Path path;
  private final MemorySegment shared;
  private final int ranks;
  private final int partBytes;
  private final long stride;

  private SharedMemorySync(Path path, MemorySegment shared, int ranks) {
    this.path = path;
    this.shared = shared;
    this.ranks = ranks;
    this.partBytes = partBytes(ranks);
    this.stride = stride(ranks);
  }

  /** Returns how much of one rank's part a round has. */
  public static int partBytes(int ranks) {
    return Math.clamp(
        Integer.highestOneBit(MOST_INPUT_BYTES / ranks), LEAST_PART_BYTES, MOST_PART_BYTES);
  }

  private static long stride(int ranks) {
    return DATA + (long) DEPTH * (ranks + 1) * partBytes(ranks);
  }

  private static long size(int ranks) {
    return FIRST_ROW + ranks * stride(ranks);
  }

  /**
   * Makes a board; the other processes open its {@link #path}.
   *
   * @throws io.nccl4j.NcclSystemException if there is no room
   */
  public static SharedMemorySync create(int ranks, int processes, Arena arena) {
    Path path = SharedMemoryFiles.newPath(SharedMemory.directory(size(ranks)));
    MemorySegment shared = SharedMemory.create(path, size(ranks), arena);
    shared.set(ValueLayout.JAVA_LONG, 0, MAGIC);
    shared.set(ValueLayout.JAVA_INT, 8, ranks);
    shared.set(ValueLayout.JAVA_INT, 12, processes);
    SharedMemorySync sync = new SharedMemorySync(path, shared, ranks);
    sync.arrive(processes);
    return sync;
  }

  /**
   * Opens the board that another process has made.
   *
   * @param peer a rank of that process
   * @throws io.nccl4j.NcclSystemException if the file cannot be opened
   * @throws ProtocolViolationException if it is no such board
   */
  public static SharedMemorySync open(Path path, int ranks, int processes, int peer, Arena arena) {
    MemorySegment shared = SharedMemory.open(path, arena);
    if (shared.byteSize() != size(ranks)
        || shared.get(ValueLayout.JAVA_LONG, 0) != MAGIC
        || shared.get(ValueLayout.JAVA_INT, 8) != ranks
        || shared.get(ValueLayout.JAVA_INT, 12) != processes) {
      throw new ProtocolViolationException(
          peer, path + " is no board of " + ranks + " ranks in " + processes + " processes");
    }
    SharedMemorySync sync = new SharedMemorySync(path, shared, ranks);
    sync.arrive(processes);
    return sync;
  }

  private void arrive(int processes) {
    if ((long) SharedMemory.COUNT.getAndAdd(shared, COME, 1L) + 1 == processes) {
      discard();
    }
  }

  /** Takes the name away where not all processes have come; idempotent. */
  public void discard() {
    SharedMemory.delete(path);
  }

  /** Returns where the file is, or was before all processes had it. */
  public Path path() {
    return path;
  }

  private long row(int rank) {
    return FIRST_ROW + rank * stride;
  }

  /** Returns what {@link #input} and {@link #result} lie in. */
  public MemorySegment memory() {
    return shared;
  }

  /** Returns where a rank puts, in a round, its data of the part that some rank owns. */
  public long input(int rank, long round, int owner) {
    return row(rank) + DATA + (slot(round) * (ranks + 1) + owner) * partBytes;
  }

  /** Returns where a rank puts what it has folded in a round. */
  public long result(int rank, long round) {
    return input(rank, round, ranks);
  }

  private static long slot(long round) {
    return round % DEPTH;
  }

  public void sign(int rank, long round, long signature) {
    shared.set(ValueLayout.JAVA_LONG, row(rank) + SIGNATURES + slot(round) * Long.BYTES, signature);
  }

  public long signature(int rank, long round) {
    return shared.get(ValueLayout.JAVA_LONG, row(rank) + SIGNATURES + slot(round) * Long.BYTES);
  }

  /** Says how many rounds a rank has put its data in for. */
  public void put(int rank, long rounds) {
    SharedMemory.COUNT.setRelease(shared, row(rank) + PUT, rounds);
  }

  /** Says how many rounds a rank has folded, and so needs no input of any more. */
  public void folded(int rank, long rounds) {
    SharedMemory.COUNT.setRelease(shared, row(rank) + FOLDED, rounds);
  }

  /** Says how many rounds a rank has taken all results of. */
  public void taken(int rank, long rounds) {
    SharedMemory.COUNT.setRelease(shared, row(rank) + TAKEN, rounds);
  }

  public long put(int rank) {
    return (long) SharedMemory.COUNT.getAcquire(shared, row(rank) + PUT);
  }

  public long folded(int rank) {
    return (long) SharedMemory.COUNT.getAcquire(shared, row(rank) + FOLDED);
  }

  public long taken(int rank) {
    return (long) SharedMemory.COUNT.getAcquire(shared, row(rank) + TAKEN);
  }
}
