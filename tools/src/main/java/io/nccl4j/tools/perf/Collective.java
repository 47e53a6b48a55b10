package io.nccl4j.tools.perf;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.Group;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.tools.cli.BusBandwidth;
import java.util.Arrays;
import java.util.Locale;
import java.util.stream.Collectors;

/** The collectives that can be measured, with the counts and bandwidths of nccl-tests. */
enum Collective implements RankEnqueue {
  ALL_REDUCE(Operation.ALL_REDUCE),
  ALL_GATHER(Operation.ALL_GATHER),
  REDUCE_SCATTER(Operation.REDUCE_SCATTER),
  BROADCAST(Operation.BROADCAST),
  REDUCE(Operation.REDUCE),
  ALLTOALL(Operation.ALL_TO_ALL),
  GATHER(Operation.GATHER),
  SCATTER(Operation.SCATTER),
  SENDRECV(Operation.SEND);

  /**
   * The counts of one operation, in elements.
   *
   * @param send the most that a rank sends
   * @param recv the most that a rank receives
   * @param param the count that the C function takes
   * @param sendInPlace in place, rank r's data to send starts at r times this in the receive buffer
   * @param recvInPlace in place, rank r's received data starts at r times this in that buffer
   */
  record Shape(long send, long recv, long param, long sendInPlace, long recvInPlace) {
    /** Returns the elements that one operation occupies in each of the two buffers. */
    long total() {
      return Math.max(send, recv);
    }
  }

  private final Operation operation;

  Collective(Operation operation) {
    this.operation = operation;
  }

  /** Returns the name on the command line. */
  String label() {
    return name().toLowerCase(Locale.ROOT);
  }

  /** Returns the name of the nccl-tests program that measures this. */
  String program() {
    return label() + "_perf";
  }

  /** Returns whether an operator combines the data. */
  boolean reduces() {
    return operation.reduces();
  }

  /** Returns whether there is a root. */
  boolean rooted() {
    return operation.rooted();
  }

  /** Returns the operation; for sendrecv, the send. */
  Operation operation() {
    return operation;
  }

  /** Returns whether NCCL has algorithms for it; others consist of sends and receives. */
  boolean hasAlgorithms() {
    return switch (this) {
      case ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE -> true;
      case ALLTOALL, GATHER, SCATTER, SENDRECV -> false;
    };
  }

  /**
   * Returns whether it can be run in place. A send and a receive of one group have no order, so
   * their result in one buffer is undefined; nccl-tests measures that anyway, without a check.
   */
  boolean hasInPlace() {
    return this != ALLTOALL && this != SENDRECV;
  }

  /**
   * Returns the counts for a size. As in nccl-tests, slices are rounded down to whole 16 bytes.
   *
   * @param count the number of elements that the size holds
   * @param elementBytes the size of one element
   * @param ranks the number of ranks
   */
  Shape shape(long count, int elementBytes, int ranks) {
    long slice =
        BusBandwidth.sliced(operation.method()) ? count / ranks & -(16L / elementBytes) : count;
    long all = slice * ranks;
    return switch (this) {
      case ALL_REDUCE, BROADCAST, REDUCE, SENDRECV -> new Shape(count, count, count, 0, 0);
      case ALL_GATHER, GATHER -> new Shape(slice, all, slice, slice, 0);
      case REDUCE_SCATTER, SCATTER -> new Shape(all, slice, slice, 0, slice);
      case ALLTOALL -> new Shape(all, all, slice, 0, 0);
    };
  }

  /** Returns the bytes of one operation that count for the algorithm bandwidth. */
  double algorithmBytes(Shape shape, int elementBytes, int ranks) {
    return BusBandwidth.bytes(operation.method(), shape.param * elementBytes, ranks);
  }

  /** Returns the bus bandwidth as a multiple of the algorithm bandwidth. */
  double busFactor(int ranks) {
    return BusBandwidth.factor(operation.method(), ranks);
  }

  @Override
  public void enqueue(
      Communicator comm, Buffer send, Buffer recv, ReduceOp op, int root, Stream stream) {
    switch (this) {
      case ALL_REDUCE -> comm.allReduce(send, recv, op, stream);
      case ALL_GATHER -> comm.allGather(send, recv, stream);
      case REDUCE_SCATTER -> comm.reduceScatter(send, recv, op, stream);
      case BROADCAST -> comm.broadcast(send, recv, root, stream);
      case REDUCE -> comm.reduce(send, recv, op, root, stream);
      case ALLTOALL -> comm.allToAll(send, recv, stream);
      case GATHER -> comm.gather(send, recv, root, stream);
      case SCATTER -> comm.scatter(send, recv, root, stream);
      case SENDRECV ->
          Group.run(
              () -> {
                comm.send(send, (comm.rank() + 1) % comm.size(), stream);
                comm.recv(recv, (comm.rank() + comm.size() - 1) % comm.size(), stream);
              });
    }
  }

  /**
   * Returns the collective with a name, in any case and with or without separators: all_reduce,
   * allreduce, AllReduce and all-reduce are the same.
   */
  static Collective named(String text) {
    return Arrays.stream(values())
        .filter(each -> bare(each.label()).equals(bare(text)))
        .findFirst()
        .orElseThrow(() -> new IllegalArgumentException("'" + text + "' is not one of " + names()));
  }

  private static String bare(String name) {
    return name.replaceAll("[-_]", "").toLowerCase(Locale.ROOT);
  }

  /** Returns all names, separated by commas. */
  static String names() {
    return Arrays.stream(values()).map(Collective::label).collect(Collectors.joining(", "));
  }
}
