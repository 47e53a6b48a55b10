package io.nccl4j.tools.evidence;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;

/** One rank that executes {@link Call}s with the backend of its communicator. */
final class Endpoint implements AutoCloseable {
  /** The number of elements after each result that must not change. */
  private static final int GUARD = 16;

  private static final byte POISON = 0x55;

  private final Communicator comm;
  private final Stream stream;
  private final List<Buffer> buffers = new ArrayList<>();
  private final Map<DataType, ReduceOp.PreMulSum> multipliers = new EnumMap<>(DataType.class);

  Endpoint(Communicator comm) {
    this.comm = comm;
    this.stream = comm.newStream();
  }

  Communicator comm() {
    return comm;
  }

  Stream stream() {
    return stream;
  }

  /** Enqueues a call; the returned buffer holds the result, followed by a guard. */
  Buffer start(Call call, MemorySegment input) {
    long larger = Math.max(call.sendCount(), call.recvCount());
    Buffer result = allocate(call.type(), (call.inPlace() ? larger : call.recvCount()) + GUARD);
    Buffer send;
    Buffer recv;
    if (!call.inPlace()) {
      send = allocate(call.type(), call.sendCount());
      recv = result.slice(0, call.recvCount());
    } else {
      long own = comm.rank() * call.count();
      send =
          call.recvCount() > call.sendCount()
              ? result.slice(own, call.sendCount())
              : result.slice(0, call.sendCount());
      recv =
          call.sendCount() > call.recvCount()
              ? result.slice(own, call.recvCount())
              : result.slice(0, call.recvCount());
    }
    send.copyFromAsync(input, stream);
    enqueue(call, send, recv);
    return result;
  }

  private Buffer allocate(DataType type, long count) {
    Buffer buffer = comm.newBuffer(type, count);
    buffers.add(buffer);
    buffer.fill(POISON, stream);
    return buffer;
  }

  private void enqueue(Call call, Buffer send, Buffer recv) {
    ReduceOp op =
        call.combine() == Call.Combine.MULSUM ? multiplier(call.type()) : call.combine().op();
    switch (call.operation()) {
      case ALL_REDUCE -> comm.allReduce(send, recv, op, stream);
      case REDUCE -> comm.reduce(send, recv, op, call.root(), stream);
      case REDUCE_SCATTER -> comm.reduceScatter(send, recv, op, stream);
      case BROADCAST -> comm.broadcast(send, recv, call.root(), stream);
      case ALL_GATHER -> comm.allGather(send, recv, stream);
      case ALL_TO_ALL -> comm.allToAll(send, recv, stream);
      case GATHER -> comm.gather(send, recv, call.root(), stream);
      case SCATTER -> comm.scatter(send, recv, call.root(), stream);
      case SEND, RECV -> ring(send, recv);
    }
  }

  private void ring(Buffer send, Buffer recv) {
    int size = comm.size();
    Group.run(
        () -> {
          comm.send(send, (comm.rank() + 1) % size, stream);
          comm.recv(recv, (comm.rank() + size - 1) % size, stream);
        });
  }

  /** Returns a pre-multiplied sum by a power of two, so rounding the product has no effect. */
  private ReduceOp multiplier(DataType type) {
    return multipliers.computeIfAbsent(type, t -> comm.newPreMulSum(t, 1 << (comm.rank() & 1)));
  }

  /** Returns the offset of a rank's result in the buffer from {@link #start}, in elements. */
  static long resultOffset(Call call, int rank) {
    boolean slice = call.inPlace() && call.sendCount() > call.recvCount();
    return slice ? rank * call.count() : 0;
  }

  /** Copies a buffer to the host, after the work enqueued before. */
  MemorySegment download(Buffer buffer) {
    MemorySegment bytes = MemorySegment.ofArray(new byte[Math.toIntExact(buffer.byteSize())]);
    buffer.copyTo(bytes, stream);
    return bytes;
  }

  /** Returns whether the guard after a downloaded result is unchanged. */
  static boolean guarded(Call call, MemorySegment downloaded) {
    long guard = (long) GUARD * call.type().bytes();
    return downloaded
            .asSlice(downloaded.byteSize() - guard)
            .mismatch(MemorySegment.ofArray(new byte[(int) guard]).fill(POISON))
        < 0;
  }

  /** Frees the buffers of the calls so far. */
  void free() {
    stream.synchronize();
    buffers.forEach(Buffer::close);
    buffers.clear();
  }

  @Override
  public void close() {
    free();
    multipliers.values().forEach(ReduceOp.PreMulSum::close);
    stream.synchronize();
    comm.close();
    stream.close();
  }
}
