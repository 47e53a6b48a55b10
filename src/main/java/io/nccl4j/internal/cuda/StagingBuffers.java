package io.nccl4j.internal.cuda;

import io.nccl4j.internal.util.CloseAll;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.spi.BufferMemory;
import io.nccl4j.spi.StreamDriver;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.logging.log4j.Logger;

/**
 * Copies between a stream's device and pageable host memory, through two pinned chunks in turn.
 *
 * <p>CUDA may access pageable memory after the call has returned, when its Java owner may have
 * freed or moved it. With staging, an upload has been read when the call returns, and a download is
 * written only by this thread.
 *
 * <p>One thread at a time uses the chunks. It waits for the device, so it holds no monitor: another
 * thread's wait for its turn has a deadline, and ends with an abort or an interrupt.
 */
final class StagingBuffers {
  private static final Logger LOG = Loggers.of(StagingBuffers.class);
  private static final long CHUNK_BYTES = PinnedMemory.CHUNK_BYTES;

  private final CudaStreamDriver stream;
  private final Semaphore turn = new Semaphore(1, true);
  private final Chunk[] chunks = new Chunk[2];
  private int next;

  /** A pinned piece and the event that is recorded when the device is done with it. */
  private record Chunk(MemoryPool.Piece piece, CudaEventDriver done) {
    MemorySegment memory() {
      return piece.memory();
    }
  }

  StagingBuffers(CudaStreamDriver stream) {
    this.stream = stream;
  }

  void upload(MemorySegment source, BufferMemory target) {
    begin();
    try {
      uploadInTurn(source, target);
    } finally {
      turn.release();
    }
  }

  private void uploadInTurn(MemorySegment source, BufferMemory target) {
    for (long offset = 0; offset < source.byteSize(); offset += CHUNK_BYTES) {
      long bytes = Math.min(CHUNK_BYTES, source.byteSize() - offset);
      Chunk chunk = free();
      MemorySegment.copy(source, offset, chunk.memory(), 0, bytes);
      stream.copy(at(target, offset), chunk.memory(), bytes);
      stream.record(chunk.done());
    }
  }

  void download(BufferMemory source, MemorySegment target) {
    begin();
    try {
      downloadInTurn(source, target);
    } finally {
      turn.release();
    }
    // Throws if a collective before the copy has failed. Waits even if there is nothing to copy.
    stream.await(StreamDriver.DEFAULT_TIMEOUT);
  }

  private void downloadInTurn(BufferMemory source, MemorySegment target) {
    Chunk pending = null;
    long pendingOffset = 0;
    for (long offset = 0; offset < target.byteSize(); offset += CHUNK_BYTES) {
      long bytes = Math.min(CHUNK_BYTES, target.byteSize() - offset);
      Chunk chunk = free();
      stream.copy(chunk.memory(), at(source, offset), bytes);
      stream.record(chunk.done());
      write(pending, target, pendingOffset);
      pending = chunk;
      pendingOffset = offset;
    }
    write(pending, target, pendingOffset);
  }

  private void begin() {
    stream.await(this::tryBegin, Deadline.after(StreamDriver.DEFAULT_TIMEOUT), "cudaEventQuery");
  }

  private boolean tryBegin() {
    stream.checkNotDestroyed();
    try {
      // Timed, since only timed attempts are fair.
      return turn.tryAcquire(1, TimeUnit.MILLISECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt(); // the wait sees it
      return false;
    }
  }

  private void write(Chunk chunk, MemorySegment target, long offset) {
    if (chunk != null) {
      await(chunk);
      long bytes = Math.min(CHUNK_BYTES, target.byteSize() - offset);
      MemorySegment.copy(chunk.memory(), 0, target, offset, bytes);
    }
  }

  /**
   * Returns the next chunk once the device is done with it. Both are allocated together on first
   * use, because pinning memory can wait for the whole device.
   */
  private Chunk free() {
    for (int i = 0; i < chunks.length; i++) {
      if (chunks[i] == null) {
        chunks[i] = newChunk();
      }
    }
    Chunk chunk = chunks[next];
    await(chunk);
    next = 1 - next;
    return chunk;
  }

  private Chunk newChunk() {
    // The event first, so that a failure leaves no memory to free.
    CudaEventDriver done = CudaEventDriver.createWithoutTiming(stream.device());
    try {
      return new Chunk(PinnedMemory.CHUNKS.take(stream.device(), CHUNK_BYTES), done);
    } catch (Throwable failure) {
      CloseAll.after(failure, done::close);
      throw failure;
    }
  }

  private static MemorySegment at(BufferMemory buffer, long offset) {
    return MemorySegment.ofAddress(buffer.address() + offset);
  }

  private void await(Chunk chunk) {
    stream.await(
        chunk.done()::isComplete, Deadline.after(StreamDriver.DEFAULT_TIMEOUT), "cudaEventQuery");
  }

  /**
   * Releases the chunks. If the stream is stuck, it may still write them, and they are leaked. So
   * they are if another thread still uses them.
   */
  void close(boolean drained) {
    // Never released: no other thread can begin. An abort may just have ended another thread's
    // wait.
    if (!Interrupts.getUninterruptibly(() -> turn.tryAcquire(5, TimeUnit.SECONDS))) {
      LOG.warn("{}: a thread is still copying; its pinned memory stays allocated", stream);
      return;
    }
    List<Runnable> steps = new ArrayList<>();
    for (int i = 0; i < chunks.length && chunks[i] != null; i++) {
      Chunk chunk = chunks[i];
      chunks[i] = null;
      if (drained) {
        steps.add(() -> MemoryPool.put(chunk.piece()));
      } else {
        LOG.warn("{} is stuck; {} bytes of pinned memory stay allocated", stream, CHUNK_BYTES);
      }
      steps.add(chunk.done()::close);
    }
    CloseAll.all(steps);
  }
}
