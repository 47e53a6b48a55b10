package io.nccl4j.tools.flight;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.FlightRecorder;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;

/**
 * One of three ranks, each in its own process. All call four all-reduces; then rank {@value
 * #CULPRIT} does something else than the others.
 */
public final class FaultyRank {
  static final int RANKS = 3;
  static final int CULPRIT = 1;
  private static final int COUNT = 1000;

  /** What the rank does instead of an all-reduce and a broadcast. */
  enum Fault {
    /** The same as the others. */
    NONE,
    /** Nothing, until it is closed. */
    ABSENT,
    /** The first one, and not the second. */
    LATE,
    /** A reduce and a broadcast. */
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

  /** Runs one rank; the arguments are its number, the rendezvous directory and the fault. */
  public static void main(String[] args) throws IOException {
    int rank = Integer.parseInt(args[0]);
    Path folder = Path.of(args[1]);
    Fault fault = rank == CULPRIT ? Fault.valueOf(args[2]) : Fault.NONE;
    CommunicatorConfig config =
        CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(2)).withName("train");
    try (Backend backend = Backend.auto(() -> Backend.reference(1));
        Rendezvous rendezvous = Rendezvous.files(folder.resolve("meet"), RankInfo.of(rank, RANKS));
        Communicator comm = rendezvous.newCommunicator(backend, config);
        Stream stream = comm.newStream();
        Buffer data = comm.newBuffer(DataType.FLOAT32, COUNT);
        Buffer whole = comm.newBuffer(DataType.INT32, COUNT)) {
      for (int i = 0; i < 4; i++) {
        comm.allReduce(data, data, ReduceOp.SUM, stream);
      }
      stream.synchronize(Duration.ofSeconds(20));
      try {
        call(fault, comm, data, whole, stream);
        stream.synchronize(Duration.ofSeconds(4));
      } catch (NcclException failure) {
        System.out.println(failure.getMessage());
      }
      if (fault == Fault.ABSENT || fault == Fault.LATE) {
        // A rank that computes, and calls nothing, until the others have given up.
        System.in.read();
      }
      FlightRecorder.dump(folder.resolve("dumps"));
      comm.abort();
    }
  }

  private static void call(
      Fault fault, Communicator comm, Buffer data, Buffer whole, Stream stream) {
    switch (fault) {
      case ABSENT -> {}
      case LATE -> comm.allReduce(data, data, ReduceOp.SUM, stream);
      case KILLED -> Runtime.getRuntime().halt(137);
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
