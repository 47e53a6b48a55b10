package io.nccl4j.contract;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Stream;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;

/** One rank of a test: a communicator, a stream, and the buffers that it frees. */
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

  /** Returns a new buffer whose bytes are all 0x55. The test need not close it. */
  Buffer allocate(DataType type, long count) {
    Buffer buffer = comm.newBuffer(type, count);
    buffers.add(buffer);
    buffer.fill((byte) 0x55, stream);
    return buffer;
  }

  /** Returns a new buffer with the given contents. The test need not close it. */
  Buffer upload(DataType type, MemorySegment contents) {
    Buffer buffer = comm.newBuffer(type, contents.byteSize() / type.bytes());
    buffers.add(buffer);
    buffer.copyFromAsync(contents, stream);
    return buffer;
  }

  /** Returns a new buffer of 32-bit integers. The test need not close it. */
  Buffer ints(int... values) {
    return upload(DataType.INT32, MemorySegment.ofArray(values));
  }

  /** Returns a buffer's contents after everything enqueued on this rank's stream has completed. */
  MemorySegment download(Buffer buffer) {
    MemorySegment contents = MemorySegment.ofArray(new byte[Math.toIntExact(buffer.byteSize())]);
    buffer.copyTo(contents, stream);
    return contents;
  }

  /** Returns a buffer's 32-bit integers after this rank's stream has completed its work. */
  int[] downloadInts(Buffer buffer) {
    int[] contents = new int[Math.toIntExact(buffer.count())];
    buffer.copyTo(MemorySegment.ofArray(contents), stream);
    return contents;
  }

  /** Waits for the stream, then closes the buffers. */
  void free() {
    stream.synchronize();
    buffers.forEach(Buffer::close);
    buffers.clear();
  }

  /** Returns whether a test has left the communicator as it was created. */
  boolean intact() {
    return comm.isOpen() && comm.asyncError().isEmpty();
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
