package io.nccl4j.tools.flight;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CommunicatorList;
import io.nccl4j.CudaException;
import io.nccl4j.DataType;
import io.nccl4j.FlightRecorder;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.RankThreads;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * Ranks that call four all-reduces; then rank {@value #CULPRIT} does something else than the
 * others, which call an all-reduce and a broadcast.
 */
public final class FaultyRank {
  static final int RANKS = 3;
  static final int CULPRIT = 1;
  private static final int COUNT = 1000;
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(2)).withName("train");

  /** What the culprit does. */
  enum Fault {
    /** The same as the others. */
    NONE,
    /** Nothing. */
    ABSENT,
    /** The first one, and not the second. */
    LATE,
    /** A reduce and the broadcast. */
    OTHER_OPERATION,
    /** An all-reduce of fewer elements, and the broadcast. */
    OTHER_COUNT,
    /** An all-reduce of another type, and the broadcast. */
    OTHER_TYPE,
    /** The broadcast before the all-reduce. */
    OTHER_ORDER,
    /** It ends its process, as a crash does. */
    KILLED
  }

  private FaultyRank() {}

  /**
   * Runs a process. The arguments are the folder, the fault and, unless the process has all ranks,
   * its rank. Dumps are written to {@code dumps} in the folder.
   */
  public static void main(String[] args) throws IOException {
    Path folder = Path.of(args[0]);
    Fault fault = Fault.valueOf(args[1]);
    if (args.length == 2) {
      Backend backend = Backend.auto(() -> Backend.reference(RANKS));
      inThreads(backend, fault);
    } else {
      int rank = Integer.parseInt(args[2]);
      Rendezvous rendezvous = Rendezvous.files(folder.resolve("meet"), RankInfo.of(rank, RANKS));
      run(rendezvous.newCommunicator(Backend.reference(1), CONFIG), fault);
      if (fault == Fault.ABSENT && rank == CULPRIT) {
        // It computes until the test ends it, and calls nothing.
        System.in.read();
      }
    }
    FlightRecorder.dump(folder.resolve("dumps"));
    // What hangs on a device cannot be closed.
    Runtime.getRuntime().halt(0);
  }

  /** Runs all ranks in threads of this process; returns what is to be closed after their abort. */
  static List<AutoCloseable> inThreads(Backend backend, Fault fault) {
    CommunicatorList comms = backend.newCommunicators(new int[] {0, 1, 2}, CONFIG);
    List<AutoCloseable> opened = new ArrayList<>(List.of(() -> Communicator.abortAll(comms)));
    RankThreads.call(RANKS, rank -> run(comms.get(rank), fault)).forEach(opened::addAll);
    return opened;
  }

  private static List<AutoCloseable> run(Communicator comm, Fault fault) {
    Stream stream = comm.newStream();
    Buffer data = comm.newBuffer(DataType.FLOAT32, COUNT);
    Buffer whole = comm.newBuffer(DataType.INT32, COUNT);
    try {
      for (int i = 0; i < 4; i++) {
        comm.allReduce(data, data, ReduceOp.SUM, stream);
      }
      call(comm.rank() == CULPRIT ? fault : Fault.NONE, comm, data, whole, stream);
      stream.synchronize(Duration.ofSeconds(4));
    } catch (NcclException | CudaException failure) {
      System.out.println(failure.getMessage());
    }
    return List.of(stream, data, whole);
  }

  private static void call(
      Fault fault, Communicator comm, Buffer data, Buffer whole, Stream stream) {
    switch (fault) {
      case ABSENT -> {}
      case LATE -> comm.allReduce(data, data, ReduceOp.SUM, stream);
      case KILLED -> {
        // Until all ranks have called the first four.
        stream.synchronize(Duration.ofSeconds(20));
        Runtime.getRuntime().halt(137);
      }
      case OTHER_OPERATION -> {
        comm.reduce(data, data, ReduceOp.SUM, 0, stream);
        comm.broadcast(data, data, 0, stream);
      }
      case OTHER_COUNT -> {
        Buffer part = data.slice(0, COUNT / 2);
        comm.allReduce(part, part, ReduceOp.SUM, stream);
        comm.broadcast(data, data, 0, stream);
      }
      case OTHER_TYPE -> {
        comm.allReduce(whole, whole, ReduceOp.SUM, stream);
        comm.broadcast(data, data, 0, stream);
      }
      case OTHER_ORDER -> {
        comm.broadcast(data, data, 0, stream);
        comm.allReduce(data, data, ReduceOp.SUM, stream);
      }
      case NONE -> {
        comm.allReduce(data, data, ReduceOp.SUM, stream);
        comm.broadcast(data, data, 0, stream);
      }
    }
  }
}
