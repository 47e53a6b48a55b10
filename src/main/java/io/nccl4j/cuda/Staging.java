package io.nccl4j.cuda;

import io.nccl4j.Buffer;
import io.nccl4j.Stream;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * Copies between a stream's device and host memory that is not page-locked, through two page-locked
 * chunks in turn.
 *
 * <p>CUDA may read such memory after the call has returned, when its Java owner may have freed or
 * moved it. What is staged here is ours: an upload has been read when the call returns, a download
 * is written only by this thread.
 */
final class Staging {
  private static final Logger LOG = LogManager.getLogger(Staging.class);
  private static final long CHUNK_BYTES = 2 << 20;
  private static final Duration CLOSE_TIMEOUT = Duration.ofSeconds(5);

  private final CudaStream stream;
  private final Chunk[] chunks = new Chunk[2];
  private int next;

  /** One page-locked piece and the event that tells when the device is done with it. */
  private record Chunk(MemorySegment memory, CudaEvent done) {}

  Staging(CudaStream stream) {
    this.stream = stream;
  }

  synchronized void upload(MemorySegment source, Buffer target) {
    for (long offset = 0; offset < source.byteSize(); offset += CHUNK_BYTES) {
      long bytes = Math.min(CHUNK_BYTES, source.byteSize() - offset);
      Chunk chunk = free(bytes);
      MemorySegment.copy(source, offset, chunk.memory(), 0, bytes);
      stream.copy(at(target, offset), chunk.memory(), bytes);
      stream.record(chunk.done());
    }
  }

  synchronized void download(Buffer source, MemorySegment target) {
    Chunk flying = null;
    long flyingOffset = 0;
    for (long offset = 0; offset < target.byteSize(); offset += CHUNK_BYTES) {
      long bytes = Math.min(CHUNK_BYTES, target.byteSize() - offset);
      Chunk chunk = free(bytes);
      stream.copy(chunk.memory(), at(source, offset), bytes);
      stream.record(chunk.done());
      write(flying, target, flyingOffset);
      flying = chunk;
      flyingOffset = offset;
    }
    write(flying, target, flyingOffset);
    // Tells the failure of a collective before the copy, and waits even where there was nothing to
    // copy.
    stream.synchronize();
  }

  private void write(Chunk chunk, MemorySegment target, long offset) {
    if (chunk != null) {
      await(chunk);
      long bytes = Math.min(CHUNK_BYTES, target.byteSize() - offset);
      MemorySegment.copy(chunk.memory(), 0, target, offset, bytes);
    }
  }

  /** Returns a chunk that the device is done with; the two take turns. */
  private Chunk free(long bytes) {
    Chunk chunk = chunks[next];
    if (chunk == null || chunk.memory().byteSize() < bytes) {
      release(chunk);
      chunks[next] = null;
      chunk = new Chunk(CudaMemory.pin(chunkBytes(bytes)), CudaEvent.create(stream.device()));
      chunks[next] = chunk;
    } else {
      await(chunk);
    }
    next = 1 - next;
    return chunk;
  }

  /**
   * Small copies get a small chunk, so that a stream that only ever copies a loss value pins a
   * page, not megabytes.
   */
  private static long chunkBytes(long bytes) {
    return Math.min(CHUNK_BYTES, Math.max(4096, Long.highestOneBit(bytes - 1) << 1));
  }

  private static MemorySegment at(Buffer buffer, long offset) {
    return MemorySegment.ofAddress(buffer.pointer().address() + offset);
  }

  private void await(Chunk chunk) {
    stream.await(chunk.done()::isComplete, Stream.DEFAULT_TIMEOUT, "cudaEventQuery");
  }

  private void release(Chunk chunk) {
    if (chunk != null) {
      await(chunk);
      chunk.done().close();
      CudaMemory.unpin(chunk.memory());
    }
  }

  synchronized void close() {
    for (Chunk chunk : chunks) {
      if (chunk == null) {
        continue;
      }
      if (chunk.done().completesWithin(CLOSE_TIMEOUT)) {
        CudaMemory.unpin(chunk.memory());
      } else {
        // Memory that a stuck stream may still write must not be given away.
        LOG.warn(
            "{} is stuck; {} bytes of page-locked memory stay with it",
            stream,
            chunk.memory().byteSize());
      }
      chunk.done().close();
    }
    chunks[0] = null;
    chunks[1] = null;
  }
}
