package io.nccl4j.internal;

import io.nccl4j.CudaException;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.internal.util.CloseAll;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.BooleanSupplier;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * Memory of one kind, kept for reuse instead of freed while freeing might wait for a rank of this
 * process. Kept memory serves the next allocation of exactly the same size. It is freed when the
 * ranks that may wait for each other have closed, or when an allocation fails.
 *
 * <p>Allocating and freeing wait for the device, so each native call has a deadline; it runs in a
 * thread of its own, whose current device and capture mode nobody else depends on.
 */
public abstract class KeptMemory {
  private static final Logger LOG = LogManager.getLogger(KeptMemory.class);
  private static final Duration TIMEOUT = Duration.ofSeconds(30);

  private static final List<KeptMemory> KINDS = new CopyOnWriteArrayList<>();

  private final String allocates;
  private final String frees;
  private final boolean perDevice;
  private final BooleanSupplier keeps;
  private final Duration timeout;
  private final Map<Size, Deque<Piece>> kept = new HashMap<>();

  /** What must be equal for a piece to be reused. */
  private record Size(int device, long bytes) {}

  /**
   * One allocation.
   *
   * @param device the device that was current when it was allocated
   */
  public record Piece(int device, MemorySegment memory, long bytes) {}

  /**
   * Starts with nothing kept.
   *
   * @param allocates the C function that allocates
   * @param frees the C function that frees
   * @param perDevice whether memory can be used on the device of its allocation only
   * @param keeps whether memory that is given up now is kept
   */
  protected KeptMemory(String allocates, String frees, boolean perDevice, BooleanSupplier keeps) {
    this(allocates, frees, perDevice, keeps, TIMEOUT);
    KINDS.add(this);
    OpenRanks.whenAlone(this::freeKept);
  }

  /** For tests: the same with another deadline, and freed on request only. */
  KeptMemory(
      String allocates, String frees, boolean perDevice, BooleanSupplier keeps, Duration timeout) {
    this.allocates = allocates;
    this.frees = frees;
    this.perDevice = perDevice;
    this.keeps = keeps;
    this.timeout = timeout;
  }

  /** Makes the native call that allocates, in a thread whose device is the right one. */
  protected abstract MemorySegment allocate(long bytes);

  /** Makes the native call that frees, in a thread whose device is the right one. */
  protected abstract void free(MemorySegment memory);

  /** Prepares a thread of ours for calls on a device. */
  void enter(int device) {
    CudaResults.check(cudart_h.cudaSetDevice(device), "cudaSetDevice");
    CaptureMode.relax();
  }

  /**
   * Returns memory that was kept, or new memory.
   *
   * @throws io.nccl4j.NcclTimeoutException if the device is busy for longer than the deadline; the
   *     memory is then kept or freed when it arrives
   */
  public Piece take(int device, long bytes) {
    synchronized (this) {
      Deque<Piece> fitting = kept.get(size(device, bytes));
      if (fitting != null && !fitting.isEmpty()) {
        return fitting.pop();
      }
    }
    return allocated(device, bytes);
  }

  private Piece allocated(int device, long bytes) {
    return BlockingCalls.callUninterrupted(
        allocates, timeout, workOn(device), () -> allocateNow(device, bytes), this::put);
  }

  private Piece allocateNow(int device, long bytes) {
    enter(device);
    try {
      return new Piece(device, allocate(bytes), bytes);
    } catch (CudaException | NcclException failure) {
      if (!freedKept(failure)) {
        throw failure;
      }
      enter(device);
      return new Piece(device, allocate(bytes), bytes);
    }
  }

  /**
   * Frees what is kept after an allocation has failed, of device memory or of host memory, however
   * it was allocated; returns whether there was anything.
   */
  private boolean freedKept(RuntimeException failure) {
    boolean any = freedOwn(failure);
    for (KeptMemory other : KINDS) {
      any |= other != this && other.perDevice == perDevice && other.freedOwn(failure);
    }
    return any;
  }

  private boolean freedOwn(RuntimeException failure) {
    List<Piece> pieces = takeAll();
    CloseAll.after(failure, () -> freeAll(pieces));
    return !pieces.isEmpty();
  }

  /** Keeps or frees a piece that nothing uses any more. */
  public void put(Piece piece) {
    // Under the lock: the rank that closes last frees whatever was kept before.
    synchronized (this) {
      if (keeps.getAsBoolean()) {
        keep(piece);
        return;
      }
    }
    BlockingCalls.runUninterrupted(
        frees, timeout, workOn(piece.device()), () -> freeAll(List.of(piece)));
  }

  /** Allocates pieces until so many are kept, for a time when allocating would wait. */
  void reserve(int device, long bytes, int pieces) {
    while (kept(size(device, bytes)) < pieces) {
      Piece piece = allocated(device, bytes);
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
    return new Size(perDevice ? device : 0, bytes);
  }

  /** Frees what is kept; what fails is logged, since its owners have closed it long ago. */
  void freeKept() {
    List<Piece> pieces = takeAll();
    if (pieces.isEmpty()) {
      return;
    }
    try {
      BlockingCalls.runUninterrupted(frees, timeout, "the devices", () -> freeAll(pieces));
    } catch (RuntimeException failure) {
      LOG.warn("{} failed for memory that was kept for reuse", frees, failure);
    }
  }

  private synchronized List<Piece> takeAll() {
    List<Piece> all = new ArrayList<>();
    kept.values().forEach(all::addAll);
    kept.clear();
    return all;
  }

  private void freeAll(List<Piece> pieces) {
    CloseAll.all(pieces.stream().<Runnable>map(piece -> () -> freeNow(piece)).toList());
  }

  private void freeNow(Piece piece) {
    enter(piece.device());
    free(piece.memory());
  }

  private static String workOn(int device) {
    return "the work on device " + device + "; abort the communicator that hangs";
  }
}
