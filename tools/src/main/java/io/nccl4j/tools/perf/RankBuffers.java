package io.nccl4j.tools.perf;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.Feature;
import io.nccl4j.Stream;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.tools.perf.TestData.Range;

/**
 * One rank's two buffers, and how the host writes and checks them: directly where it can address
 * them, else through pinned memory.
 *
 * <p>What is written repeats, so the host copies a piece to the device and the device copies the
 * rest to itself, which is much faster. What is checked has to come to the host.
 */
final class RankBuffers implements AutoCloseable {
  private static final long PIECE_BYTES = 8L << 20;

  private final Stream stream;
  private final Buffer send;
  private final Buffer recv;

  /** Two pieces, one of which is compared while the other is copied; or null. */
  private final Buffer staging;

  private final long piece;

  /** Allocates the buffers of one rank, in elements. */
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

  /** Takes the memory that nccl-tests takes: some transports of NCCL register no other. */
  private static Buffer allocate(Backend backend, int device, DataType type, long count) {
    // Older releases have no such memory, and nccl-tests takes CUDA's then.
    if (backend.supports(Feature.REGISTRATION)) {
      return NcclBackend.of(backend).newRegistrableBuffer(device, type, count);
    }
    return backend.newBuffer(device, type, count);
  }

  /** Returns the buffer that out-of-place operations send from. */
  Buffer send() {
    return send;
  }

  /** Returns the buffer that all operations receive into, and that in-place ones send from. */
  Buffer recv() {
    return recv;
  }

  /** Writes a span into a buffer; nothing that uses the buffer may be running. */
  void write(Buffer buffer, Range span) {
    Buffer target = buffer.slice(span.offset(), span.count());
    if (staging == null) {
      span.pattern().write(target.segment(), span.start());
      return;
    }
    // Whole periods, so that what follows them is what they begin with.
    long periods = PIECE_BYTES / buffer.type().bytes() / Pattern.PERIOD;
    long written = Math.min(span.count(), periods * Pattern.PERIOD);
    Buffer host = staging.slice(0, written);
    span.pattern().write(host.segment(), span.start());
    target.slice(0, written).copyFromAsync(host, stream);
    while (written < span.count()) {
      long more = Math.min(written, span.count() - written);
      target.slice(written, more).copyFromAsync(target.slice(0, more), stream);
      written += more;
    }
    stream.synchronize();
  }

  /** Returns how many elements of a buffer are not those of a span; nothing may be running. */
  long wrong(Buffer buffer, Range span) {
    Buffer data = buffer.slice(span.offset(), span.count());
    if (staging == null) {
      return span.pattern().wrong(data.segment(), span.start());
    }
    long wrong = 0;
    Buffer next = fetch(data, 0);
    for (long done = 0; done < span.count(); done += piece) {
      Buffer fetched = next;
      stream.synchronize();
      next = fetch(data, done + piece);
      wrong += span.pattern().wrong(fetched.segment(), span.start() + done);
    }
    return wrong;
  }

  /** Copies the piece that begins at an element to the half of the staging memory that is free. */
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
