package io.nccl4j.internal.schedule;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.RankThreads;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.NcclConfig;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;

/**
 * Enqueues collectives of random sizes, for {@link PlannerTest}. The data has no meaning, and the
 * emulated CUDA moves none of it.
 *
 * <p>With the arguments {@code OPERATION SEED CALLS} all ranks are threads of this process, and
 * there are several communicators; with {@code OPERATION SEED CALLS RANK RANKS DIRECTORY DEVICE}
 * this process is one rank of one communicator.
 */
public final class PlannedCollectives {
  private static final int MIN_RANKS = 2;
  private static final int MAX_RANKS = 8;
  private static final List<DataType> TYPES = List.of(DataType.values());
  private static final List<Integer> MAX_CTAS = List.of(1, 2, 3, 4, 7, 12, 64);
  private static final long MAX_BYTES = 256 << 20;

  /** Both algorithms divide data into multiples of this, or of a quarter of it. */
  private static final int CELL_BYTES = 16 << 10;

  /** One collective; the count is that of a rank's smaller buffer. */
  record Call(DataType type, long count) {
    int root(int ranks) {
      return (int) (count % ranks);
    }
  }

  /** The collectives on one communicator. */
  record Run(int ranks, int maxCtas, List<Call> calls) {}

  private PlannedCollectives() {}

  /**
   * Returns the same collectives for the same arguments; the first of each run uses all channels.
   */
  static List<Run> runs(long seed, int calls) {
    SplittableRandom random = new SplittableRandom(seed);
    int first = random.nextInt(MAX_CTAS.size());
    List<Run> runs = new ArrayList<>();
    for (int ranks = MIN_RANKS; ranks <= MAX_RANKS; ranks++) {
      List<Call> planned = new ArrayList<>();
      planned.add(new Call(DataType.UINT8, MAX_BYTES / ranks));
      while (planned.size() < calls) {
        planned.add(call(random, ranks));
      }
      runs.add(new Run(ranks, MAX_CTAS.get((first + ranks) % MAX_CTAS.size()), planned));
    }
    return runs;
  }

  /** Returns the collectives of ranks in separate processes. */
  static Run run(long seed, int calls, int ranks) {
    return new Run(ranks, MAX_CTAS.getLast(), runs(seed, calls).get(ranks - MIN_RANKS).calls);
  }

  /** Returns a call of a size of any magnitude, often near a whole number of cells. */
  private static Call call(SplittableRandom random, int ranks) {
    DataType type = TYPES.get(random.nextInt(TYPES.size()));
    long max = MAX_BYTES / ranks / type.bytes();
    long count = (long) Math.pow((double) max, random.nextDouble());
    if (random.nextInt(3) == 0) {
      long cell = (CELL_BYTES / type.bytes()) >> random.nextInt(3);
      count = Math.ceilDiv(count, cell) * cell + random.nextInt(-1, 2);
    }
    return new Call(type, Math.clamp(count, 1, max));
  }

  /** Enqueues the collectives and halts. */
  public static void main(String[] arguments) {
    Operation operation = Operation.valueOf(arguments[0]);
    long seed = Long.parseLong(arguments[1]);
    int calls = Integer.parseInt(arguments[2]);
    try (Backend backend = Backend.nccl()) {
      if (arguments.length == 3) {
        runs(seed, calls).forEach(run -> enqueueInThreads(backend, run, operation));
      } else {
        RankInfo rank = RankInfo.of(Integer.parseInt(arguments[3]), Integer.parseInt(arguments[4]));
        Run run = run(seed, calls, rank.size());
        Rendezvous rendezvous = Rendezvous.files(Path.of(arguments[5]), rank);
        int device = Integer.parseInt(arguments[6]);
        enqueueInProcess(backend, run, operation, rendezvous, device);
      }
    }
  }

  private static void enqueueInThreads(Backend backend, Run run, Operation operation) {
    UniqueId id = backend.newUniqueId();
    RankThreads.run(
        run.ranks,
        rank -> {
          CommunicatorConfig device = CommunicatorConfig.defaults().withDevice(rank);
          NcclConfig config = NcclConfig.of(device).withMaxCtas(run.maxCtas);
          try (Communicator comm =
              NcclBackend.of(backend).newCommunicator(id, run.ranks, rank, config)) {
            enqueue(comm, run, operation);
          }
        });
  }

  private static void enqueueInProcess(
      Backend backend, Run run, Operation operation, Rendezvous rendezvous, int device) {
    CommunicatorConfig config = CommunicatorConfig.defaults().withDevice(device);
    enqueue(rendezvous.newCommunicator(backend, config), run, operation);
    // Waits until all have enqueued. Networks still wait for the data of the first communicator.
    rendezvous.newCommunicator(backend, config);
    Runtime.getRuntime().halt(0);
  }

  private static void enqueue(Communicator comm, Run run, Operation operation) {
    try (Stream stream = comm.newStream();
        Buffer data = comm.newBuffer(DataType.INT8, MAX_BYTES)) {
      for (Call call : run.calls) {
        Buffer whole = view(data, call.type, call.count * comm.size());
        enqueue(comm, operation, call, whole, stream);
      }
      stream.synchronize();
    }
  }

  private static Buffer view(Buffer data, DataType type, long count) {
    return Buffer.ofDeviceAddress(data.address(), type, count, data.device());
  }

  private static void enqueue(
      Communicator comm, Operation operation, Call call, Buffer whole, Stream stream) {
    Buffer first = whole.slice(0, call.count);
    Buffer own = whole.slice(comm.rank() * call.count, call.count);
    int root = call.root(comm.size());
    switch (operation) {
      case ALL_REDUCE -> comm.allReduce(first, first, ReduceOp.SUM, stream);
      case REDUCE_SCATTER -> comm.reduceScatter(whole, own, ReduceOp.SUM, stream);
      case ALL_GATHER -> comm.allGather(own, whole, stream);
      case BROADCAST -> comm.broadcast(first, root, stream);
      case REDUCE -> comm.reduce(first, first, ReduceOp.SUM, root, stream);
      default -> throw new IllegalArgumentException(operation + " has no plan of channels");
    }
  }
}
