package io.nccl4j.internal.reference.transport;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;

/**
 * Memory that all ranks of a communicator on one host share, for {@code SharedMemoryAllReduce}.
 * Each rank has a row, which it alone writes and all others read. A row contains the number of
 * rounds that the rank has completed of each of three steps since the creation of this object, the
 * rank's inputs and its results.
 *
 * <p>The process of rank 0 creates the file and announces it, and unlinks it once all processes
 * have opened it. No rank uses the memory before.
 */
public final class SharedMemorySync {
  /** The number of rounds of a rank that are kept at a time. */
  public static final int DEPTH = 2;

  private static final long MAGIC = 0x4234_6C63_636E_0001L;
  private static final int MAX_PART_BYTES = 32 << 10;
  private static final int MIN_PART_BYTES = 4 << 10;
  private static final int MAX_INPUT_BYTES = 256 << 10;

  private static final long ARRIVED = 32;
  private static final long FIRST_ROW = 2 * SharedMemory.LINE_PAIR_BYTES;

  // Offsets in a row.
  private static final long PUT = 0;
  private static final long FOLDED = 8;
  private static final long TAKEN = 16;
  private static final long SIGNATURES = 32;
  private static final long DATA = SharedMemory.LINE_PAIR_BYTES;

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

  /** Returns the size of one rank's part of a round in bytes. */
  public static int partBytes(int ranks) {
    return Math.clamp(
        Integer.highestOneBit(MAX_INPUT_BYTES / ranks), MIN_PART_BYTES, MAX_PART_BYTES);
  }

  private static long stride(int ranks) {
    return DATA + (long) DEPTH * (ranks + 1) * partBytes(ranks);
  }

  private static long size(int ranks) {
    return FIRST_ROW + ranks * stride(ranks);
  }

  /**
   * Creates a sync object; the other processes open its {@link #path}.
   *
   * @throws io.nccl4j.NcclSystemException if the file cannot be created
   */
  public static SharedMemorySync create(int ranks, int processes, Arena arena) {
    Path path = SharedMemoryFiles.newPath(SharedMemory.directory(size(ranks)));
    MemorySegment shared = SharedMemory.create(path, size(ranks), arena);
    shared.set(ValueLayout.JAVA_LONG, 0, MAGIC);
    shared.set(ValueLayout.JAVA_INT, 8, ranks);
    shared.set(ValueLayout.JAVA_INT, 12, processes);
    return arrived(new SharedMemorySync(path, shared, ranks));
  }

  /**
   * Opens the sync object that another process has created.
   *
   * @param peer a rank of that process
   * @throws io.nccl4j.NcclSystemException if the file cannot be opened
   * @throws ProtocolViolationException if the file is not such a sync object
   */
  public static SharedMemorySync open(Path path, int ranks, int processes, int peer, Arena arena) {
    MemorySegment shared = SharedMemory.open(path, arena);
    if (shared.byteSize() != size(ranks)
        || shared.get(ValueLayout.JAVA_LONG, 0) != MAGIC
        || shared.get(ValueLayout.JAVA_INT, 8) != ranks
        || shared.get(ValueLayout.JAVA_INT, 12) != processes) {
      throw new ProtocolViolationException(
          peer,
          path + " is not a sync object of " + ranks + " ranks in " + processes + " processes");
    }
    return arrived(new SharedMemorySync(path, shared, ranks));
  }

  private static SharedMemorySync arrived(SharedMemorySync sync) {
    long _ = (long) SharedMemory.COUNT.getAndAdd(sync.shared, ARRIVED, 1L);
    return sync;
  }

  /** Returns whether all processes have opened the file. */
  public boolean complete(int processes) {
    return (long) SharedMemory.COUNT.getAcquire(shared, ARRIVED) == processes;
  }

  /** Unlinks the file; processes that have opened it keep the memory. Idempotent. */
  public void discard() {
    SharedMemory.delete(path);
  }

  /** Returns the path of the file. */
  public Path path() {
    return path;
  }

  private long row(int rank) {
    return FIRST_ROW + rank * stride;
  }

  /** Returns the memory that {@link #input} and {@link #result} are offsets in. */
  public MemorySegment memory() {
    return shared;
  }

  /** Returns the offset of a rank's input, in a round, to the part that a rank owns. */
  public long input(int rank, long round, int owner) {
    return row(rank) + DATA + (slot(round) * (ranks + 1) + owner) * partBytes;
  }

  /** Returns the offset of a rank's result of a round. */
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

  /** Sets the number of rounds whose input a rank has written. */
  public void put(int rank, long rounds) {
    SharedMemory.COUNT.setRelease(shared, row(rank) + PUT, rounds);
  }

  /** Sets the number of rounds that a rank has folded, whose input it no longer needs. */
  public void folded(int rank, long rounds) {
    SharedMemory.COUNT.setRelease(shared, row(rank) + FOLDED, rounds);
  }

  /** Sets the number of rounds of which a rank has read all results. */
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
