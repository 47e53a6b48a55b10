package io.nccl4j.internal.cuda;

import io.nccl4j.CudaException;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.internal.ffm.BlockingCalls;
import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.Loggers;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.logging.log4j.Logger;

/**
 * Allocates and frees memory of one kind. While freeing might wait for a rank of this process,
 * memory is kept for reuse instead. Kept memory serves the next allocation of exactly the same size
 * and kind. It is freed once the ranks that may wait for each other are closed, or if an allocation
 * fails.
 *
 * <p>Allocating and freeing wait for the device, so each native call runs on a separate thread,
 * where setting the current device and the capture mode has no side effects. An allocation has a
 * deadline. A free that takes longer than a second goes on without its caller, since it may wait
 * for a peer of another process; until it ends, memory is kept.
 */
public abstract class MemoryPool {
  private static final Logger LOG = Loggers.of(MemoryPool.class);
  private static final Duration TIMEOUT = Duration.ofSeconds(30);
  private static final Duration FREE_WAIT = Duration.ofSeconds(1);

  // The memory that is kept, of all kinds, that which was released last first. Guarded by itself,
  // as are the late frees: the rank that closes last frees all memory that was kept before.
  private static final Deque<Piece> KEPT = new ArrayDeque<>();
  private static final List<LateFree> LATE = new ArrayList<>();

  static {
    OpenRanks.whenAlone(MemoryPool::freeKept);
  }

  /** Where memory is: on a device, or {@link #HOST}, which belongs to all devices. */
  private record Place(int device) {
    static final Place HOST = new Place(-1);
  }

  /** A free that goes on without its caller. */
  private record LateFree(Place place, CompletableFuture<Void> end) {}

  /**
   * One allocation.
   *
   * @param kind allocated it and frees it
   * @param device the device that was current when it was allocated
   */
  public record Piece(MemoryPool kind, int device, MemorySegment memory, long bytes) {
    private Place place() {
      return kind.place(device);
    }

    private void free() {
      kind.enter(device);
      kind.free(memory);
    }
  }

  private final String allocateFunction;
  private final String freeFunction;
  private final boolean perDevice;
  private final BooleanSupplier keeps;
  private final Duration timeout;

  /**
   * Creates a kind of memory.
   *
   * @param allocateFunction the C function that allocates
   * @param freeFunction the C function that frees
   * @param perDevice whether memory can only be used on the device that it was allocated for
   */
  protected MemoryPool(String allocateFunction, String freeFunction, boolean perDevice) {
    this(allocateFunction, freeFunction, perDevice, OpenRanks::several, TIMEOUT);
  }

  /**
   * For tests.
   *
   * @param keeps whether memory that is released now is kept
   * @param timeout the deadline of an allocation
   */
  MemoryPool(
      String allocateFunction,
      String freeFunction,
      boolean perDevice,
      BooleanSupplier keeps,
      Duration timeout) {
    this.allocateFunction = allocateFunction;
    this.freeFunction = freeFunction;
    this.perDevice = perDevice;
    this.keeps = keeps;
    this.timeout = timeout;
  }

  /** Makes the native call that allocates, on a thread whose current device is set. */
  protected abstract MemorySegment allocate(long bytes);

  /** Makes the native call that frees, on a thread whose current device is set. */
  protected abstract void free(MemorySegment memory);

  /** Prepares an nccl4j thread for calls on a device. */
  void enter(int device) {
    CudaResults.check(cudart_h.cudaSetDevice(device), "cudaSetDevice");
    CaptureMode.relax();
  }

  private Place place(int device) {
    return perDevice ? new Place(device) : Place.HOST;
  }

  /**
   * Returns kept or new memory.
   *
   * @throws io.nccl4j.NcclTimeoutException if the device is busy for longer than the timeout; the
   *     memory is kept or freed once it has been allocated
   */
  public Piece take(int device, long bytes) {
    synchronized (KEPT) {
      Optional<Piece> fitting = KEPT.stream().filter(fitting(device, bytes)).findFirst();
      if (fitting.isPresent()) {
        KEPT.remove(fitting.get());
        return fitting.get();
      }
    }
    return allocateWithDeadline(device, bytes);
  }

  private Predicate<Piece> fitting(int device, long bytes) {
    Place place = place(device);
    return piece -> piece.kind == this && piece.bytes == bytes && piece.place().equals(place);
  }

  private Piece allocateWithDeadline(int device, long bytes) {
    return BlockingCalls.callUninterrupted(
        allocateFunction,
        timeout,
        "the work on device " + device + "; abort the communicator that hangs",
        () -> allocateNow(device, bytes),
        MemoryPool::put);
  }

  private Piece allocateNow(int device, long bytes) {
    enter(device);
    try {
      return new Piece(this, device, allocate(bytes), bytes);
    } catch (CudaException | NcclException failure) {
      Place place = place(device);
      boolean ended = awaitLateFrees(place);
      List<Piece> pieces = takeFreeable(place);
      CloseAll.after(failure, () -> freeNow(pieces));
      if (pieces.isEmpty() && !ended) {
        throw failure;
      }
      enter(device);
      return new Piece(this, device, allocate(bytes), bytes);
    }
  }

  /**
   * Waits for the frees that go on without their callers; returns whether one has ended. Takes only
   * half of the timeout, so that the caller learns why the allocation has failed.
   */
  private boolean awaitLateFrees(Place place) {
    Deadline deadline = Deadline.after(timeout.dividedBy(2));
    boolean any = false;
    for (LateFree free : lateFrees(place)) {
      try {
        any |= Interrupts.getUninterruptibly(() -> endsBy(deadline, free.end()));
      } catch (ExecutionException failure) {
        LOG.debug("a late free has failed, as was logged", failure);
      }
    }
    return any;
  }

  private static List<LateFree> lateFrees(Place place) {
    synchronized (KEPT) {
      return LATE.stream().filter(free -> free.place().equals(place)).toList();
    }
  }

  /** Keeps or frees a piece that is no longer used. */
  public static void put(Piece piece) {
    synchronized (KEPT) {
      if (!lateFrees(piece.place()).isEmpty() || piece.kind.keeps.getAsBoolean()) {
        KEPT.push(piece);
        return;
      }
    }
    free(piece.place(), List.of(piece));
  }

  /** Frees memory of one place. */
  private static void free(Place place, List<Piece> pieces) {
    MemoryPool kind = pieces.getFirst().kind;
    CompletableFuture<Void> freed =
        CompletableFuture.runAsync(
            () -> freeNow(pieces), task -> BlockingCalls.start(kind.freeFunction, task));
    Deadline deadline = Deadline.after(FREE_WAIT);
    try {
      if (Interrupts.getUninterruptibly(() -> endsBy(deadline, freed))) {
        return;
      }
    } catch (ExecutionException failure) {
      throw BlockingCalls.rethrown(failure.getCause());
    }
    LOG.info("a free waits for work of the devices; it goes on in the background");
    LateFree late = new LateFree(place, freed);
    synchronized (KEPT) {
      LATE.add(late);
    }
    var _ = freed.whenComplete((nothing, failure) -> kind.endLateFree(late, failure));
  }

  private static void freeNow(List<Piece> pieces) {
    CloseAll.all(pieces.stream().<Runnable>map(piece -> piece::free).toList());
  }

  private static boolean endsBy(Deadline deadline, CompletableFuture<Void> freed)
      throws InterruptedException, ExecutionException {
    try {
      freed.get(deadline.remainingNanos(), TimeUnit.NANOSECONDS);
      return true;
    } catch (TimeoutException late) {
      return false;
    }
  }

  private void endLateFree(LateFree free, Throwable failure) {
    if (failure != null) {
      LOG.warn("{} failed in the background", freeFunction, failure);
    }
    synchronized (KEPT) {
      LATE.removeIf(late -> late == free);
      if (keeps.getAsBoolean()) {
        return;
      }
    }
    freeKept();
  }

  /** Allocates until that many pieces are kept, for a time when allocating would wait. */
  void reserve(int device, long bytes, int pieces) {
    while (kept(device, bytes) < pieces) {
      Piece piece = allocateWithDeadline(device, bytes);
      synchronized (KEPT) {
        KEPT.push(piece);
      }
    }
  }

  private long kept(int device, long bytes) {
    synchronized (KEPT) {
      return KEPT.stream().filter(fitting(device, bytes)).count();
    }
  }

  /**
   * Frees kept memory, except in places with late frees, whose end frees it. Failures are logged,
   * because its owners have already closed it.
   */
  static void freeKept() {
    Set<Place> places;
    synchronized (KEPT) {
      places = KEPT.stream().map(Piece::place).collect(Collectors.toSet());
    }
    for (Place place : places) {
      List<Piece> pieces = takeFreeable(place);
      try {
        if (!pieces.isEmpty()) {
          free(place, pieces);
        }
      } catch (RuntimeException failure) {
        LOG.warn("memory that was kept for reuse could not be freed", failure);
      }
    }
  }

  /** Takes the memory that is kept in a place; none if an earlier free there still waits. */
  private static List<Piece> takeFreeable(Place place) {
    synchronized (KEPT) {
      if (!lateFrees(place).isEmpty()) {
        return List.of();
      }
      List<Piece> taken = KEPT.stream().filter(piece -> piece.place().equals(place)).toList();
      KEPT.removeAll(taken);
      return taken;
    }
  }
}
