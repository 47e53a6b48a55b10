package io.nccl4j.drill;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;

/**
 * One rank's call of a collective. Its memory is allocated in advance, because an allocation may
 * wait for other calls that hang. A rank's data are consecutive integers starting at 100 * rank.
 */
public final class DrillCall implements AutoCloseable {
  private final Operation operation;
  private final Communicator comm;
  private final Stream stream;
  private final int count;
  private final int root;
  private final Buffer send;
  private final Buffer recv;

  /** Prepares a call; if it has a root, the root is chosen so that rank 2 is needed. */
  public DrillCall(
      Operation operation, DataType type, int count, Communicator comm, Stream stream) {
    this.operation = operation;
    this.comm = comm;
    this.stream = stream;
    this.count = count;
    this.root = operation == Operation.REDUCE || operation == Operation.GATHER ? 0 : 2;
    this.send = comm.newBuffer(type, count * slices(Operation.SCATTER, Operation.REDUCE_SCATTER));
    this.recv = comm.newBuffer(type, count * slices(Operation.GATHER, Operation.ALL_GATHER));
    int[] data = IntStream.range(0, (int) send.count()).map(i -> 100 * comm.rank() + i).toArray();
    send.copyFromAsync(MemorySegment.ofArray(data), stream);
    recv.fill((byte) 0, stream);
    stream.synchronize();
  }

  /** Returns the collective operations. */
  public static List<Operation> collectives() {
    return Arrays.stream(Operation.values()).filter(each -> !each.pointToPoint()).toList();
  }

  private long slices(Operation one, Operation another) {
    return operation == one || operation == another || operation == Operation.ALL_TO_ALL
        ? comm.size()
        : 1;
  }

  /** Enqueues the call. */
  public void enqueue() {
    switch (operation) {
      case ALL_REDUCE -> comm.allReduce(send, recv, ReduceOp.SUM, stream);
      case BROADCAST -> comm.broadcast(send, recv, root, stream);
      case REDUCE -> comm.reduce(send, recv, ReduceOp.SUM, root, stream);
      case ALL_GATHER -> comm.allGather(send, recv, stream);
      case REDUCE_SCATTER -> comm.reduceScatter(send, recv, ReduceOp.SUM, stream);
      case ALL_TO_ALL -> comm.allToAll(send, recv, stream);
      case GATHER -> comm.gather(send, recv, root, stream);
      case SCATTER -> comm.scatter(send, recv, root, stream);
      default -> throw new IllegalArgumentException(operation + " is no collective");
    }
  }

  /** Returns whether this rank has the expected result, or zeros if it receives none. */
  public boolean hasRightValues() {
    int[] values = new int[(int) recv.count()];
    recv.copyTo(MemorySegment.ofArray(values), stream);
    boolean receives =
        comm.rank() == root || (operation != Operation.REDUCE && operation != Operation.GATHER);
    int[] expected =
        IntStream.range(0, values.length).map(i -> receives ? expected(i) : 0).toArray();
    return Arrays.equals(expected, values);
  }

  private int expected(int index) {
    int slice = index / count;
    int within = index % count;
    int ofAll = 100 * comm.size() * (comm.size() - 1) / 2;
    int own = comm.rank() * count;
    return switch (operation) {
      case ALL_REDUCE, REDUCE -> ofAll + comm.size() * index;
      case REDUCE_SCATTER -> ofAll + comm.size() * (own + index);
      case BROADCAST -> 100 * root + index;
      case ALL_GATHER, GATHER -> 100 * slice + within;
      case ALL_TO_ALL -> 100 * slice + own + within;
      default -> 100 * root + own + index;
    };
  }

  @Override
  public void close() {
    send.close();
    recv.close();
  }
}
