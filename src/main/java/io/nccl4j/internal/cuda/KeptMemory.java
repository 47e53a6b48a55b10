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
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.logging.log4j.Logger;

/**
 * A cache for memory of one kind. While freeing might wait for a rank of this process, memory is
 * kept for reuse instead. Kept memory serves the next allocation of exactly the same size. It is
 * freed once the ranks that may wait for each other are closed, or if an allocation fails.
 *
 * <p>Allocating and freeing wait for the device, so each native call runs on a separate thread,
 * where setting the current device and the capture mode has no side effects. An allocation has a
 * deadline. A free that takes longer than a second goes on without its caller, since it may wait
 * for a peer of another process; until it ends, memory is kept.
 */
public abstract class KeptMemory {
  private static final Logger LOG = Loggers.of(KeptMemory.class);
  private static final Duration TIMEOUT = Duration.ofSeconds(30);
  private static final Duration FREE_WAIT = Duration.ofSeconds(1);

  private static final List<KeptMemory> CACHES = new CopyOnWriteArrayList<>();

  private final String allocateFunction;
  private final String freeFunction;
  private final boolean perDevice;
  private final BooleanSupplier keeps;
  private final Duration timeout;
  private final Map<Size, Deque<Piece>> kept = new HashMap<>();
  private final List<LateFree> lateFrees = new ArrayList<>();

  /** A free that goes on without its caller. */
  private record LateFree(CompletableFuture<Void> end, int device) {}

  /** The key of the cache. */
  private record Size(int device, long bytes) {}

  /**
   * One allocation.
   *
   * @param device the device that was current when it was allocated
   */
  public record Piece(int device, MemorySegment memory, long bytes) {}

  /**
   * Creates an empty cache.
   *
   * @param allocateFunction the C function that allocates
   * @param freeFunction the C function that frees
   * @param perDevice whether memory can only be used on the device that it was allocated for
   */
  protected KeptMemory(String allocateFunction, String freeFunction, boolean perDevice) {
    this(allocateFunction, freeFunction, perDevice, OpenRanks::several, TIMEOUT);
    CACHES.add(this);
    OpenRanks.whenAlone(this::freeKept);
  }

  /**
   * For tests: with another timeout, another condition for keeping memory that is released, and
   * kept memory is only freed on request.
   */
  KeptMemory(
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

  /**
   * Returns kept or new memory.
   *
   * @throws io.nccl4j.NcclTimeoutException if the device is busy for longer than the timeout; the
   *     memory is kept or freed once it has been allocated
   */
  public Piece take(int device, long bytes) {
    synchronized (this) {
      Deque<Piece> pieces = kept.get(size(device, bytes));
      if (pieces != null && !pieces.isEmpty()) {
        return pieces.pop();
      }
    }
    return allocateWithDeadline(device, bytes);
  }

  private Piece allocateWithDeadline(int device, long bytes) {
    return BlockingCalls.callUninterrupted(
        allocateFunction,
        timeout,
        workDescription(device),
        () -> allocateNow(device, bytes),
        this::put);
  }

  private Piece allocateNow(int device, long bytes) {
    enter(device);
    try {
      return new Piece(device, allocate(bytes), bytes);
    } catch (CudaException | NcclException failure) {
      boolean ended = awaitLateFree(device);
      if (!freeKeptAfter(device, failure) && !ended) {
        throw failure;
      }
      enter(device);
      return new Piece(device, allocate(bytes), bytes);
    }
  }

  /**
   * Frees kept memory after an allocation has failed: that of the device or all host memory, from
   * every allocator, unless an earlier free still waits. Returns whether there was any.
   */
  private boolean freeKeptAfter(int device, RuntimeException failure) {
    boolean any = false;
    for (KeptMemory cache : ofTheSameMemory()) {
      List<Piece> pieces = cache.takeFreeable(device);
      CloseAll.after(failure, () -> cache.freeAll(pieces));
      any |= !pieces.isEmpty();
    }
    return any;
  }

  /**
   * Waits for the frees that go on without their callers; returns whether one has ended. Takes only
   * half of the timeout, so that the caller learns why the allocation has failed.
   */
  private boolean awaitLateFree(int device) {
    List<CompletableFuture<Void>> frees = new ArrayList<>();
    for (KeptMemory cache : ofTheSameMemory()) {
      frees.addAll(cache.lateFrees(device));
    }
    Deadline deadline = Deadline.after(timeout.dividedBy(2));
    boolean any = false;
    for (CompletableFuture<Void> free : frees) {
      try {
        any |= Interrupts.getUninterruptibly(() -> endsBy(deadline, free));
      } catch (ExecutionException failure) {
        LOG.debug("{} has failed, as was logged", freeFunction, failure);
      }
    }
    return any;
  }

  private synchronized List<CompletableFuture<Void>> lateFrees(int device) {
    return lateFrees.stream()
        .filter(free -> free.device() == owner(device))
        .map(LateFree::end)
        .toList();
  }

  /** Returns this cache, and those whose memory is of the same kind. */
  private Set<KeptMemory> ofTheSameMemory() {
    Set<KeptMemory> caches = new LinkedHashSet<>(Set.of(this));
    CACHES.stream().filter(other -> other.perDevice == perDevice).forEach(caches::add);
    return caches;
  }

  /** Keeps or frees a piece that is no longer used. */
  public void put(Piece piece) {
    // Under the lock, because the rank that closes last frees all memory that was kept before.
    synchronized (this) {
      if (!lateFrees(piece.device()).isEmpty() || keeps.getAsBoolean()) {
        keep(piece);
        return;
      }
    }
    free(owner(piece.device()), List.of(piece));
  }

  /** Frees memory of one device, or of the host. */
  private void free(int device, List<Piece> pieces) {
    CompletableFuture<Void> freed =
        CompletableFuture.runAsync(
            () -> freeAll(pieces), task -> BlockingCalls.start(freeFunction, task));
    Deadline deadline = Deadline.after(FREE_WAIT);
    try {
      if (Interrupts.getUninterruptibly(() -> endsBy(deadline, freed))) {
        return;
      }
    } catch (ExecutionException failure) {
      throw BlockingCalls.rethrown(failure.getCause());
    }
    LOG.info("{} waits for work of the devices; it goes on in the background", freeFunction);
    LateFree late = new LateFree(freed, device);
    synchronized (this) {
      lateFrees.add(late);
    }
    var _ = freed.whenComplete((nothing, failure) -> endLateFree(late, failure));
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
    synchronized (this) {
      lateFrees.removeIf(late -> late == free);
      if (keeps.getAsBoolean()) {
        return;
      }
    }
    freeKept();
  }

  /** Allocates until that many pieces are kept, for a time when allocating would wait. */
  void reserve(int device, long bytes, int pieces) {
    while (kept(size(device, bytes)) < pieces) {
      Piece piece = allocateWithDeadline(device, bytes);
      synchronized (this) {
        keep(piece);
      }
    }
  }

  private synchronized int kept(Size size) {
    Deque<Piece> pieces = kept.get(size);
    return pieces == null ? 0 : pieces.size();
  }

  private void keep(Piece piece) {
    kept.computeIfAbsent(size(piece.device(), piece.bytes()), none -> new ArrayDeque<>())
        .push(piece);
  }

  private Size size(int device, long bytes) {
    return new Size(owner(device), bytes);
  }

  /** Returns the device that memory is kept for; all host memory belongs together. */
  private int owner(int device) {
    return perDevice ? device : 0;
  }

  /**
   * Frees kept memory, except of devices with late frees, whose end frees it. Failures are logged,
   * because its owners have already closed it.
   */
  void freeKept() {
    for (int device : keptDevices()) {
      List<Piece> pieces = takeFreeable(device);
      try {
        if (!pieces.isEmpty()) {
          free(device, pieces);
        }
      } catch (RuntimeException failure) {
        LOG.warn("{} failed for memory that was kept for reuse", freeFunction, failure);
      }
    }
  }

  private synchronized Set<Integer> keptDevices() {
    return kept.keySet().stream().map(Size::device).collect(Collectors.toSet());
  }

  /** Takes the memory that is kept for a device; none if an earlier free of it still waits. */
  private synchronized List<Piece> takeFreeable(int device) {
    List<Piece> taken = new ArrayList<>();
    if (!lateFrees(device).isEmpty()) {
      return taken;
    }
    for (Map.Entry<Size, Deque<Piece>> pieces : kept.entrySet()) {
      if (pieces.getKey().device() == owner(device)) {
        taken.addAll(pieces.getValue());
        pieces.getValue().clear();
      }
    }
    return taken;
  }

  private void freeAll(List<Piece> pieces) {
    CloseAll.all(pieces.stream().<Runnable>map(piece -> () -> freeNow(piece)).toList());
  }

  private void freeNow(Piece piece) {
    enter(piece.device());
    free(piece.memory());
  }

  private static String workDescription(int device) {
    return "the work on device " + device + "; abort the communicator that hangs";
  }
}
