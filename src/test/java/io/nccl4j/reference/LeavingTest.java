package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What ranks hear of those of another process that close. */
class LeavingTest {
  /** Ranks 0 and 2 are of one process, 1 and 3 of another. */
  private static final int RANKS = 4;

  private static World world(Communicator comm) {
    return ((ReferenceCommunicator) comm).member().world();
  }

  private static void everyoneHasCome(Communicator comm, Stream stream) {
    try (Buffer none = comm.allocate(DataType.INT32, 1)) {
      comm.allReduce(none, none, ReduceOp.MAX, stream);
      stream.synchronize();
    }
  }

  @Test
  @Timeout(60)
  void ranksOfOneProcessThatCloseAtTheSameTimeAreNotTakenForLost() {
    CountDownLatch begun = new CountDownLatch(1);
    CountDownLatch closed = new CountDownLatch(1);
    Ranks.run(
        RANKS,
        SeparateSites.open(RANKS, ReferenceOptions.defaults(), 2),
        CommunicatorConfig.defaults(),
        (comm, stream) -> {
          everyoneHasCome(comm, stream);
          World world = world(comm);
          switch (comm.rank()) {
            case 0 -> {
              begun.await();
              comm.close();
              closed.countDown();
            }
            case 2 -> {
              // As far as a close gets before another one overtakes it.
              world.peer(2).become(Peer.Presence.CLOSED);
              begun.countDown();
              closed.await();
              comm.close();
            }
            default -> {
              while (!world.peer(0).left() || !world.peer(2).left()) {
                Thread.sleep(1);
              }
              assertEquals(Peer.Presence.CLOSED, world.peer(0).presence());
              assertEquals(Peer.Presence.CLOSED, world.peer(2).presence());
            }
          }
        });
  }
}
