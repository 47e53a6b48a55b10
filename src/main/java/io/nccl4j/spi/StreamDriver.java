package io.nccl4j.spi;

import io.nccl4j.CudaException;
import io.nccl4j.NcclTimeoutException;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.concurrent.CompletionStage;

/** A backend's part of a {@link io.nccl4j.Stream}. Any thread may use one. */
public interface StreamDriver {
  /** How long a wait lasts for which the program has named no time. */
  Duration DEFAULT_TIMEOUT = Duration.ofMinutes(30);

  /**
   * Waits until everything enqueued so far has finished. It throws what work on the stream or one
   * of its communicators failed with, and when the time has passed.
   */
  void await(Duration timeout);

  /**
   * Waits as {@link #await} does, whatever the communicators have to report. An interrupt is kept
   * for later.
   *
   * @throws NcclTimeoutException if the timeout expires
   * @throws CudaException if work on this stream failed
   */
  void drain(Duration timeout);

  /** Returns whether everything enqueued so far has finished; throws as {@link #await} does. */
  boolean isComplete();

  /**
   * Returns whether everything enqueued so far has finished, without asking the communicators.
   *
   * @throws CudaException if work on this stream failed
   */
  boolean idle();

  /** Returns a stage that completes, or fails, as a wait of {@link #DEFAULT_TIMEOUT} does. */
  CompletionStage<Void> completion();

  /** Enqueues the marking of an open event of this stream's device. */
  void record(EventDriver event);

  /** Enqueues a wait for an open event of the same backend. */
  void waitFor(EventDriver event);

  /** Enqueues a copy to memory that this device can use; takes the contents before it returns. */
  void upload(MemorySegment source, BufferMemory target);

  /** Copies from memory that this device can use, and waits as {@link #await} does. */
  void download(BufferMemory source, MemorySegment target);

  /** Enqueues a copy between memory of one size, one of which this device can use. */
  void copy(BufferMemory source, BufferMemory target);

  /** Enqueues setting every byte of memory that this device can use. */
  void fill(BufferMemory target, byte value);

  /**
   * Launches operations of this stream while a recording runs, and reports to the trace when the
   * stream begins and ends them.
   *
   * @param launch enqueues them, from this thread
   */
  void trace(OperationTrace trace, Runnable launch);

  /** Returns whether operations are launched while they are captured, because CUDA takes them. */
  default boolean capturesNatively() {
    return false;
  }

  /** Begins to capture, where something must know. */
  default void beginCapture() {
    // A recording needs no beginning.
  }

  /** Ends the capture; returns its graph, or null for one that enqueues the operations anew. */
  default GraphDriver endCapture() {
    return null;
  }

  /** Ends a capture that has failed and is to have no graph. */
  default void dropCapture() {
    // A recording is forgotten.
  }

  /** Returns whether other code owns what this stream stands for, and keeps it. */
  default boolean foreign() {
    return false;
  }

  /**
   * Waits for what is enqueued, for at most the longest timeout of the communicators that it
   * carries, and releases the stream, also where the wait failed; called once.
   *
   * @throws NcclTimeoutException if the timeout expires
   * @throws CudaException if work on this stream failed, or the runtime refuses
   */
  void release();

  /**
   * Returns what ends the threads of a stream that was never closed, once it is no longer
   * reachable. It must not refer to the stream, nor wait.
   */
  default Runnable whenForgotten() {
    return () -> {};
  }
}
