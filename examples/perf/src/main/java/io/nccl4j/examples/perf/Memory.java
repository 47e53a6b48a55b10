package io.nccl4j.examples.perf;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.Stream;
import io.nccl4j.UnsupportedNcclVersionException;
import io.nccl4j.examples.perf.TestData.Span;
import io.nccl4j.nccl.NcclBackend;

/**
 * One rank's two buffers, and how the host writes and checks them: directly where it can address
 * them, else through pinned memory, piece by piece.
 */
final class Memory implements AutoCloseable {
  private static final long PIECE_BYTES = 8L << 20;

  private final Stream stream;
  private final Buffer send;
  private final Buffer recv;
  private final Buffer staging;

  /** Allocates the buffers of one rank, in elements. */
  Memory(Backend backend, int device, Stream stream, DataType type, long count) {
    this.stream = stream;
    this.send = allocate(backend, device, type, count);
    this.recv = allocate(backend, device, type, count);
    this.staging =
        send.space() == Buffer.Space.DEVICE
            ? backend.allocatePinned(type, Math.min(count, PIECE_BYTES / type.bytes()))
            : null;
  }

  /** Takes the memory that nccl-tests takes: some transports of NCCL register no other. */
  private static Buffer allocate(Backend backend, int device, DataType type, long count) {
    if (backend instanceof NcclBackend nccl) {
      try {
        return nccl.allocateRegistrable(device, type, count);
      } catch (UnsupportedNcclVersionException older) {
        // nccl-tests takes memory of CUDA then.
        return nccl.allocate(device, type, count);
      }
    }
    return backend.allocate(device, type, count);
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
  void write(Buffer buffer, Span span) {
    for (long done = 0; done < span.count(); ) {
      long count = piece(span, done);
      Buffer part = buffer.slice(span.offset() + done, count);
      if (staging == null) {
        span.pattern().write(part.segment(), span.start() + done);
      } else {
        Buffer host = staging.slice(0, count);
        span.pattern().write(host.segment(), span.start() + done);
        part.copyFrom(host, stream);
        stream.synchronize();
      }
      done += count;
    }
  }

  /** Returns how many elements of a buffer are not those of a span; nothing may be running. */
  long wrong(Buffer buffer, Span span) {
    long wrong = 0;
    for (long done = 0; done < span.count(); ) {
      long count = piece(span, done);
      Buffer part = buffer.slice(span.offset() + done, count);
      if (staging != null) {
        Buffer host = staging.slice(0, count);
        host.copyFrom(part, stream);
        stream.synchronize();
        part = host;
      }
      wrong += span.pattern().wrong(part.segment(), span.start() + done);
      done += count;
    }
    return wrong;
  }

  private long piece(Span span, long done) {
    long left = span.count() - done;
    return staging == null ? left : Math.min(left, staging.count());
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
