package io.nccl4j.tools.perf;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.Feature;
import io.nccl4j.Stream;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.tools.perf.TestData.Range;

/**
 * One rank's two buffers. The host writes and checks them directly if it can address them, else
 * through pinned staging memory.
 *
 * <p>Written data repeats, so the host copies one piece to the device and the device replicates it,
 * which is much faster. Checked data is copied to the host.
 */
final class RankBuffers implements AutoCloseable {
  private static final long PIECE_BYTES = 8L << 20;

  private final Stream stream;
  private final Buffer send;
  private final Buffer recv;

  /** Two pieces of pinned memory: one is compared while the other is copied. Or null. */
  private final Buffer staging;

  private final long piece;

  /** Allocates two buffers of {@code count} elements each. */
  RankBuffers(Backend backend, int device, Stream stream, DataType type, long count) {
    this.stream = stream;
    this.send = allocate(backend, device, type, count);
    this.recv = allocate(backend, device, type, count);
    this.piece = Math.clamp(count, 1, PIECE_BYTES / type.bytes());
    this.staging =
        send.memoryType() == Buffer.MemoryType.DEVICE
            ? backend.newPinnedBuffer(type, 2 * piece)
            : null;
  }

  /** Allocates as nccl-tests does: some transports of NCCL register only ncclMemAlloc's memory. */
  private static Buffer allocate(Backend backend, int device, DataType type, long count) {
    // Older NCCL releases lack ncclMemAlloc; nccl-tests then uses cudaMalloc.
    if (backend.supports(Feature.REGISTRATION)) {
      return NcclBackend.of(backend).newRegistrableBuffer(device, type, count);
    }
    return backend.newBuffer(device, type, count);
  }

  /** Returns the send buffer of out-of-place operations. */
  Buffer send() {
    return send;
  }

  /** Returns the receive buffer, which in-place operations also send from. */
  Buffer recv() {
    return recv;
  }

  /** Writes a range into a buffer that no running operation uses. */
  void write(Buffer buffer, Range range) {
    Buffer target = buffer.slice(range.offset(), range.count());
    if (staging == null) {
      range.pattern().write(target.segment(), range.start());
      return;
    }
    // Whole periods, so that copies of them continue the pattern.
    long periods = PIECE_BYTES / buffer.type().bytes() / Pattern.PERIOD;
    long written = Math.min(range.count(), periods * Pattern.PERIOD);
    Buffer host = staging.slice(0, written);
    range.pattern().write(host.segment(), range.start());
    target.slice(0, written).copyFromAsync(host, stream);
    while (written < range.count()) {
      long more = Math.min(written, range.count() - written);
      target.slice(written, more).copyFromAsync(target.slice(0, more), stream);
      written += more;
    }
    stream.synchronize();
  }

  /** Counts the elements of a buffer that differ from a range; no running operation may use it. */
  long wrong(Buffer buffer, Range range) {
    Buffer data = buffer.slice(range.offset(), range.count());
    if (staging == null) {
      return range.pattern().wrong(data.segment(), range.start());
    }
    long wrong = 0;
    Buffer next = fetch(data, 0);
    for (long done = 0; done < range.count(); done += piece) {
      Buffer fetched = next;
      stream.synchronize();
      next = fetch(data, done + piece);
      wrong += range.pattern().wrong(fetched.segment(), range.start() + done);
    }
    return wrong;
  }

  /** Copies the piece from element {@code from} on to the free half of the staging buffer. */
  private Buffer fetch(Buffer data, long from) {
    long count = Math.clamp(data.count() - from, 0, piece);
    Buffer host = staging.slice(from / piece % 2 * piece, count);
    if (count > 0) {
      host.copyFromAsync(data.slice(from, count), stream);
    }
    return host;
  }

  @Override
  public void close() {
    send.close();
    recv.close();
    if (staging != null) {
      staging.close();
    }
  }
}
