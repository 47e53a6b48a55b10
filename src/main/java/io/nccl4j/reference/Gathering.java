package io.nccl4j.reference;

import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.NcclException;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Result;
import io.nccl4j.UniqueId;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.Map;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;

/**
 * Where the ranks of a communicator to be meet: all that come with one unique id, until they are
 * complete or one has failed. The registry of this process knows a gathering no longer than that.
 */
final class Gathering {
  private static final byte[] PREFIX = "nccl4j-reference".getBytes(StandardCharsets.US_ASCII);
  private static final SecureRandom RANDOM = new SecureRandom();
  private static final int ORIGIN_BYTES = 16;

  /** Tells this process's ids from those of others. */
  private static final byte[] ORIGIN = origin();

  private static final Map<UniqueId, Gathering> OPEN = new HashMap<>();

  private static final String ONE_PROCESS =
      "the reference backend joins ranks of one process only, each in a thread of its own; ranks in"
          + " several processes need the NCCL backend, and a GPU each";

  private final UniqueId id;
  private final int size;
  private final ReferenceOptions options;
  private final BitSet present = new BitSet();
  private volatile World world;
  // Makes an exception for each rank, since each may add to its own.
  private volatile Supplier<NcclException> failure;

  private Gathering(UniqueId id, int size, ReferenceOptions options) {
    this.id = id;
    this.size = size;
    this.options = options;
  }

  /** Returns a new id that only the reference backend understands. */
  static UniqueId newId() {
    byte[] bytes = new byte[UniqueId.BYTES];
    RANDOM.nextBytes(bytes);
    System.arraycopy(PREFIX, 0, bytes, 0, PREFIX.length);
    System.arraycopy(ORIGIN, 0, bytes, PREFIX.length, ORIGIN_BYTES);
    return UniqueId.of(bytes);
  }

  private static byte[] origin() {
    byte[] bytes = new byte[ORIGIN_BYTES];
    RANDOM.nextBytes(bytes);
    return bytes;
  }

  static void checkId(UniqueId id) {
    byte[] bytes = id.toBytes();
    if (!Arrays.equals(PREFIX, Arrays.copyOf(bytes, PREFIX.length))) {
      throw new IllegalArgumentException(
          "id is "
              + id
              + ", which another backend made; the reference backend needs an id of its own"
              + " newUniqueId");
    }
    int end = PREFIX.length + ORIGIN_BYTES;
    if (!Arrays.equals(ORIGIN, Arrays.copyOfRange(bytes, PREFIX.length, end))) {
      throw new IllegalArgumentException(
          "id is " + id + ", which another process made; " + ONE_PROCESS);
    }
  }

  /** Finds the gathering of an id, or opens it, and comes to it. */
  static Gathering enter(UniqueId id, int size, int rank, ReferenceOptions options) {
    synchronized (OPEN) {
      Gathering gathering = OPEN.computeIfAbsent(id, key -> new Gathering(key, size, options));
      gathering.admit(size, rank, options);
      return gathering;
    }
  }

  private synchronized void admit(int wantedSize, int rank, ReferenceOptions wanted) {
    if (failure != null) {
      throw failure.get();
    }
    if (wantedSize != size) {
      throw refused(
          "rank " + rank + " wants " + wantedSize + " ranks, the ranks before it " + size);
    }
    if (present.get(rank)) {
      throw refused("rank " + rank + " has come already; every rank comes once");
    }
    if (!wanted.equals(options)) {
      throw refused(
          "rank "
              + rank
              + " has other options than the ranks before it: "
              + wanted
              + ", "
              + options);
    }
    present.set(rank);
    if (present.cardinality() == size) {
      world = new World(size, options);
      OPEN.remove(id);
      notifyAll();
    }
  }

  private static NcclInvalidUsageException refused(String text) {
    return new NcclInvalidUsageException("connect", Result.INVALID_USAGE.code(), text, "");
  }

  /** Waits until all ranks have come; returns this rank's place among them. */
  Member await(int rank, Duration timeout, BooleanSupplier aborted, String communicator) {
    awaitOutcome(rank, timeout, aborted);
    if (world != null) {
      return world.member(rank);
    }
    forget();
    if (Thread.currentThread().isInterrupted()) {
      throw ReferenceStream.interrupted("connect");
    }
    throw aborted.getAsBoolean()
        ? new CommunicatorAbortedException("connect", communicator)
        : failure.get();
  }

  private synchronized void awaitOutcome(int rank, Duration timeout, BooleanSupplier aborted) {
    Deadline deadline = Deadline.after(timeout);
    while (world == null && failure == null) {
      if (aborted.getAsBoolean()) {
        fail(() -> Fault.remote("connect", "rank " + rank + " aborted before all ranks had come"));
      } else if (deadline.passed()) {
        String text =
            Member.ranks(missing())
                + " of "
                + size
                + " did not come to this process; "
                + ONE_PROCESS;
        fail(() -> new NcclTimeoutException("connect", timeout, text));
      } else {
        try {
          wait(deadline.millisLeft(Long.MAX_VALUE));
        } catch (InterruptedException e) {
          Thread.currentThread().interrupt();
          if (world == null && failure == null) {
            fail(() -> Fault.remote("connect", "rank " + rank + " was interrupted meanwhile"));
          }
          return;
        }
      }
    }
  }

  private synchronized void fail(Supplier<NcclException> cause) {
    failure = cause;
    notifyAll();
  }

  private BitSet missing() {
    BitSet missing = new BitSet();
    missing.set(0, size);
    missing.andNot(present);
    return missing;
  }

  private void forget() {
    synchronized (OPEN) {
      OPEN.remove(id, this);
    }
  }

  /** Makes waiting ranks look whether they have been aborted. */
  synchronized void wake() {
    notifyAll();
  }

  /** Returns how many gatherings this process knows; for tests. */
  static int openGatherings() {
    synchronized (OPEN) {
      return OPEN.size();
    }
  }
}
