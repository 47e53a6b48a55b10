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
  /** The number of elements after each out-of-place result that must not change. */
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

  int rank() {
    return comm.rank();
  }

  /** Enqueues a call and returns its result, if it is out of place with a guard after it. */
  Buffer start(Call call, MemorySegment input) {
    long own = comm.rank() * call.count();
    Buffer send;
    Buffer recv;
    Buffer result;
    if (call.inPlace()) {
      Buffer both = allocate(call.type(), Math.max(call.sendCount(), call.recvCount()));
      send = both.slice(call.recvCount() > call.sendCount() ? own : 0, call.sendCount());
      recv = both.slice(call.sendCount() > call.recvCount() ? own : 0, call.recvCount());
      result = recv;
    } else {
      send = allocate(call.type(), call.sendCount());
      result = allocate(call.type(), call.recvCount() + GUARD);
      recv = result.slice(0, call.recvCount());
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

  /** Copies a buffer to the host, after the work enqueued before. */
  MemorySegment download(Buffer buffer) {
    MemorySegment bytes = MemorySegment.ofArray(new byte[Math.toIntExact(buffer.byteSize())]);
    buffer.copyTo(bytes, stream);
    return bytes;
  }

  /** Frees the buffers of the calls so far. */
  void free() {
    stream.synchronize();
    buffers.forEach(Buffer::close);
    buffers.clear();
  }

  /** Frees everything except the communicator, which the caller closes. */
  @Override
  public void close() {
    free();
    multipliers.values().forEach(ReduceOp.PreMulSum::close);
    stream.close();
  }
}
