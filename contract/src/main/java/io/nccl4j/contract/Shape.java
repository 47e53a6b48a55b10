package io.nccl4j.contract;

import static io.nccl4j.Operation.ALL_GATHER;
import static io.nccl4j.Operation.ALL_TO_ALL;
import static io.nccl4j.Operation.GATHER;
import static io.nccl4j.Operation.REDUCE;
import static io.nccl4j.Operation.REDUCE_SCATTER;
import static io.nccl4j.Operation.SCATTER;

import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * One collective call: its buffer sizes, its in-place layout, and its data movement.
 *
 * @param count the count argument of the NCCL function
 */
record Shape(Operation operation, DataType type, ReduceOp op, int ranks, long count, int root) {
  /** Returns the number of elements that every rank sends. */
  long sendCount() {
    return operation == REDUCE_SCATTER || operation == ALL_TO_ALL || operation == SCATTER
        ? ranks * count
        : count;
  }

  /** Returns the number of elements that a rank receives. */
  long recvCount() {
    return operation == ALL_GATHER || operation == ALL_TO_ALL || operation == GATHER
        ? ranks * count
        : count;
  }

  boolean hasInPlaceForm() {
    return operation != ALL_TO_ALL;
  }

  /** Returns whether a rank receives a result. */
  boolean receives(int rank) {
    return rank == root || (operation != REDUCE && operation != GATHER);
  }

  private boolean sends(int rank) {
    return rank == root || (operation != Operation.BROADCAST && operation != SCATTER);
  }

  /** Runs the call on one rank and returns what it received, or null if it receives nothing. */
  MemorySegment run(Rank rank, MemorySegment input, boolean inPlace) {
    Buffer recv = start(rank, input, inPlace);
    return receives(rank.rank()) ? rank.download(recv) : null;
  }

  /** Enqueues the input and the call on one rank and returns the buffer that gets the result. */
  Buffer start(Rank rank, MemorySegment input, boolean inPlace) {
    Buffer send;
    Buffer recv;
    if (!inPlace) {
      send = sends(rank.rank()) ? rank.upload(type, input) : null;
      recv = receives(rank.rank()) ? rank.allocate(type, recvCount()) : null;
    } else if (recvCount() > sendCount()) {
      recv = rank.allocate(type, recvCount());
      send = recv.slice(rank.rank() * count, count);
      send.copyFromAsync(input, rank.stream());
    } else {
      send = rank.upload(type, input);
      recv = sendCount() > recvCount() ? send.slice(rank.rank() * count, count) : send;
    }
    enqueue(rank, send, recv);
    return recv;
  }

  /** Enqueues the call on a rank's stream. */
  void enqueue(Rank rank, Buffer send, Buffer recv) {
    if (recv == null && operation == REDUCE) {
      rank.comm().reduce(send, op, root, rank.stream());
      return;
    }
    if (recv == null && operation == GATHER) {
      rank.comm().gather(send, root, rank.stream());
      return;
    }
    if (send == null && operation == SCATTER) {
      rank.comm().scatter(recv, root, rank.stream());
      return;
    }
    switch (operation) {
      case ALL_REDUCE -> rank.comm().allReduce(send, recv, op, rank.stream());
      case BROADCAST -> rank.comm().broadcast(send, recv, root, rank.stream());
      case REDUCE -> rank.comm().reduce(send, recv, op, root, rank.stream());
      case ALL_GATHER -> rank.comm().allGather(send, recv, rank.stream());
      case REDUCE_SCATTER -> rank.comm().reduceScatter(send, recv, op, rank.stream());
      case ALL_TO_ALL -> rank.comm().allToAll(send, recv, rank.stream());
      case GATHER -> rank.comm().gather(send, recv, root, rank.stream());
      case SCATTER -> rank.comm().scatter(send, recv, root, rank.stream());
      case SEND -> rank.comm().send(send, root, rank.stream());
      case RECV -> rank.comm().recv(recv, root, rank.stream());
    }
  }

  /** Returns the index of the first element of the reduction that a rank receives. */
  long reducedFrom(int rank) {
    return operation == REDUCE_SCATTER ? rank * count : 0;
  }

  /** Returns the data that a rank receives from an operation that only moves data. */
  MemorySegment moved(List<MemorySegment> inputs, int rank) {
    long bytes = count * type.bytes();
    MemorySegment result =
        MemorySegment.ofArray(new byte[Math.toIntExact(recvCount() * type.bytes())]);
    switch (operation) {
      case BROADCAST -> result.copyFrom(inputs.get(root));
      case SCATTER -> result.copyFrom(inputs.get(root).asSlice(rank * bytes, bytes));
      case ALL_GATHER, GATHER -> {
        for (int r = 0; r < ranks; r++) {
          result.asSlice(r * bytes, bytes).copyFrom(inputs.get(r));
        }
      }
      case ALL_TO_ALL -> {
        for (int r = 0; r < ranks; r++) {
          result.asSlice(r * bytes, bytes).copyFrom(inputs.get(r).asSlice(rank * bytes, bytes));
        }
      }
      default -> throw new IllegalStateException(operation + " does more than move data");
    }
    return result;
  }

  String text(int rank, boolean inPlace) {
    String operator = operation.reduces() ? " " + op : "";
    String rooted = operation.rooted() ? ", root " + root : "";
    return "%s of %d %s%s, rank %d of %d%s, %s"
        .formatted(
            operation.method(),
            count,
            type,
            operator,
            rank,
            ranks,
            rooted,
            inPlace ? "in-place" : "out-of-place");
  }
}
