package io.nccl4j.spi;

import io.nccl4j.CudaException;
import io.nccl4j.NcclTimeoutException;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.concurrent.CompletionStage;

/** The driver of a {@link io.nccl4j.Stream}. Any thread may use it. */
public interface StreamDriver {
  /** The timeout of a wait for which the program specifies none. */
  Duration DEFAULT_TIMEOUT = Duration.ofMinutes(30);

  /**
   * Waits until all work enqueued so far has completed. Throws if work on the stream or one of its
   * communicators has failed, or the timeout expires.
   */
  void await(Duration timeout);

  /**
   * Waits as {@link #await} does, but ignores failures of the communicators and interrupts; the
   * interrupt status is kept.
   *
   * @throws NcclTimeoutException if the timeout expires
   * @throws CudaException if work on this stream failed
   */
  void drain(Duration timeout);

  /** Returns whether all work enqueued so far has completed; throws as {@link #await} does. */
  boolean isComplete();

  /**
   * Returns whether the device does no more work of this stream: it has completed all, or has
   * failed. Ignores failures of the communicators. False while the stream is being captured.
   */
  boolean idle();

  /** Returns a stage that completes, or fails, as a wait of {@link #DEFAULT_TIMEOUT} does. */
  CompletionStage<Void> completion();

  /** Records an open event of this stream's device. */
  void record(EventDriver event);

  /** Enqueues a wait for an open event of the same backend. */
  void waitFor(EventDriver event);

  /** Enqueues a copy to memory that this device can use; reads the source before it returns. */
  void upload(MemorySegment source, BufferMemory target);

  /** Copies from memory that this device can use, and waits as {@link #await} does. */
  void download(BufferMemory source, MemorySegment target);

  /** Enqueues a copy between buffers of the same size, one of which this device can use. */
  void copy(BufferMemory source, BufferMemory target);

  /** Enqueues setting every byte of memory that this device can use. */
  void fill(BufferMemory target, byte value);

  /**
   * Launches operations of this stream and reports to the trace when the stream starts and
   * completes them.
   *
   * @param launch enqueues the operations, from this thread
   */
  void trace(OperationTrace trace, Runnable launch);

  /**
   * Follows calls that this thread has just launched on this stream, which is not captured: reports
   * to them until the stream has completed them. Does not wait.
   */
  default void follow(PendingLaunch launched) {
    // Without reports.
  }

  /** Returns whether operations must be launched during a capture, so that CUDA captures them. */
  default boolean capturesNatively() {
    return false;
  }

  /** Begins a capture, if the backend captures natively. */
  default void beginCapture() {
    // Nothing to do: the operations are only recorded.
  }

  /** Ends the capture; returns its graph, or null if the graph enqueues the operations again. */
  default GraphDriver endCapture() {
    return null;
  }

  /** Discards a failed capture. */
  default void dropCapture() {
    // Nothing to do: the operations were only recorded.
  }

  /**
   * Returns whether CUDA is capturing this stream, for nccl4j or for other code, so that a wait for
   * it is not possible.
   */
  default boolean capturing() {
    return false;
  }

  /** Returns whether this stream wraps a stream that other code owns. */
  default boolean foreign() {
    return false;
  }

  /**
   * Waits for enqueued work, for at most the longest timeout of the communicators that use the
   * stream, and releases the stream even if the wait fails; called once.
   *
   * @throws NcclTimeoutException if the timeout expires
   * @throws CudaException if work on this stream failed, or the CUDA runtime reports an error
   */
  void release();

  /**
   * Returns whether the stream was released although its work had not ended, so that a device may
   * still access the memory of that work. Failed work has ended.
   */
  boolean stuck();

  /**
   * Returns an action that ends the threads of a stream that became unreachable without having been
   * closed. It must not refer to the stream, and must not block.
   */
  default Runnable whenForgotten() {
    return () -> {};
  }
}
