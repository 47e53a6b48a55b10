package io.nccl4j.contract;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Stream;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;

/** One rank as a test sees it: a communicator, a stream, and buffers that are freed for it. */
final class Rank {
  private final Communicator comm;
  private final Stream stream;
  private final List<Buffer> buffers = new ArrayList<>();

  Rank(Communicator comm) {
    this.comm = comm;
    this.stream = comm.newStream();
  }

  Communicator comm() {
    return comm;
  }

  Stream stream() {
    return stream;
  }

  int rank() {
    return comm.rank();
  }

  int size() {
    return comm.size();
  }

  /** Returns a new buffer that the test need not close, its bytes all 0x55. */
  Buffer allocate(DataType type, long count) {
    Buffer buffer = comm.newBuffer(type, count);
    buffers.add(buffer);
    buffer.fill((byte) 0x55, stream);
    return buffer;
  }

  /** Returns a new buffer with these contents that the test need not close. */
  Buffer upload(DataType type, MemorySegment contents) {
    Buffer buffer = comm.newBuffer(type, contents.byteSize() / type.bytes());
    buffers.add(buffer);
    buffer.copyFromAsync(contents, stream);
    return buffer;
  }

  /** Returns a new buffer of 32-bit integers that the test need not close. */
  Buffer ints(int... values) {
    return upload(DataType.INT32, MemorySegment.ofArray(values));
  }

  /** Returns a buffer's contents, once this rank's stream has passed everything enqueued. */
  MemorySegment download(Buffer buffer) {
    MemorySegment contents = MemorySegment.ofArray(new byte[Math.toIntExact(buffer.byteSize())]);
    buffer.copyTo(contents, stream);
    return contents;
  }

  /** Returns the 32-bit integers in a buffer, once this rank's stream has passed. */
  int[] downloadInts(Buffer buffer) {
    int[] contents = new int[Math.toIntExact(buffer.count())];
    buffer.copyTo(MemorySegment.ofArray(contents), stream);
    return contents;
  }

  /** Frees the buffers, once the stream is done with them. */
  void free() {
    stream.synchronize();
    buffers.forEach(Buffer::close);
    buffers.clear();
  }

  void close() {
    buffers.forEach(Buffer::close);
    comm.close();
    stream.close();
  }

  @Override
  public String toString() {
    return "rank " + rank() + " of " + size();
  }
}
