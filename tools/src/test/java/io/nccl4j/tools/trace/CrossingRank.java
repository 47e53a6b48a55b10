package io.nccl4j.tools.trace;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import java.nio.file.Path;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;

/**
 * The program that a test records: one of two ranks, each in its own process. On rank 0 an exchange
 * on one stream and one on another always overlap: rank 1 sends its part of either only after it
 * has received rank 0's part of both.
 */
public final class CrossingRank {
  private static final int ALL_REDUCES = 3;
  private static final int COUNT = 1000;

  /** An event of the program. */
  @Name("test.Backward")
  @Label("backward")
  private static final class Backward extends Event {}

  private CrossingRank() {}

  /** Runs one rank; the arguments are its number and the rendezvous directory. */
  public static void main(String[] args) {
    int rank = Integer.parseInt(args[0]);
    try (Backend backend = Backend.reference(2);
        Rendezvous rendezvous = Rendezvous.files(Path.of(args[1]), RankInfo.of(rank, 2));
        Communicator first = rendezvous.newCommunicator(backend, CommunicatorConfig.defaults());
        Communicator second = first.split(0, rank);
        Stream one = first.newStream();
        Stream another = first.newStream();
        Buffer sent = first.newBuffer(DataType.FLOAT32, COUNT);
        Buffer received = first.newBuffer(DataType.FLOAT32, COUNT)) {
      sent.fill((byte) 0, one);
      for (int i = 0; i < ALL_REDUCES; i++) {
        Backward backward = new Backward();
        backward.begin();
        first.allReduce(sent, sent, ReduceOp.SUM, one);
        backward.commit();
      }
      one.synchronize();
      if (rank == 0) {
        exchange(first, sent, received, one);
        exchange(second, sent, received, another);
      } else {
        first.recv(received, 0, one);
        second.recv(received, 0, another);
        one.synchronize();
        another.synchronize();
        first.send(sent, 0, one);
        second.send(sent, 0, another);
      }
      one.synchronize();
      another.synchronize();
    }
  }

  private static void exchange(Communicator comm, Buffer sent, Buffer received, Stream stream) {
    Group.run(
        () -> {
          comm.send(sent, 1, stream);
          comm.recv(received, 1, stream);
        });
  }
}
