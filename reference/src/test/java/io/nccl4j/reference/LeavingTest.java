package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.internal.reference.ReferenceCommunicator;
import io.nccl4j.internal.reference.rank.CommunicatorState;
import io.nccl4j.internal.reference.rank.RankFailure;
import io.nccl4j.internal.reference.transport.Presence;
import io.nccl4j.spi.Contract;
import java.util.BitSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** How ranks see ranks of another process close. */
class LeavingTest {
  /** Ranks 0 and 2 are of one process, 1 and 3 of another. */
  private static final int RANKS = 4;

  private static CommunicatorState state(Communicator comm) {
    return ((ReferenceCommunicator) Contract.get().driver(comm)).hostedRank().communicator();
  }

  private static void synchronize(Communicator comm, Stream stream) {
    try (Buffer none = comm.newBuffer(DataType.INT32, 1)) {
      comm.allReduce(none, none, ReduceOp.MAX, stream);
      stream.synchronize();
    }
  }

  @Test
  @Timeout(60)
  void ranksThatCloseAtTheSameTimeAreNotLost() {
    CountDownLatch begun = new CountDownLatch(1);
    CountDownLatch closed = new CountDownLatch(1);
    Ranks.run(
        RANKS,
        ReferenceBackend.openAsProcesses(RANKS, 2, ReferenceOptions.defaults()),
        CommunicatorConfig.defaults(),
        (comm, stream) -> {
          synchronize(comm, stream);
          CommunicatorState communicator = state(comm);
          switch (comm.rank()) {
            case 0 -> {
              begun.await();
              comm.close();
              closed.countDown();
            }
            case 2 -> {
              // The state of a close just before another one overtakes it.
              communicator.rankState(2).setPresence(Presence.CLOSED);
              begun.countDown();
              closed.await();
              comm.close();
            }
            default -> {
              while (!communicator.presence(0).left() || !communicator.presence(2).left()) {
                Thread.sleep(1);
              }
              assertEquals(Presence.CLOSED, communicator.rankState(0).presence());
              assertEquals(Presence.CLOSED, communicator.rankState(2).presence());
            }
          }
        });
  }

  /**
   * Rank 1 knows the failure, rank 2 does not yet: the test suppresses the message to it by
   * reporting the failure to rank 1 alone.
   */
  @Test
  @Timeout(60)
  void failureIsSentBeforeThePresenceItCauses() {
    CyclicBarrier connected = new CyclicBarrier(3);
    CountDownLatch received = new CountDownLatch(1);
    RankFailure failure =
        RankFailure.protocolViolation("rank 0 sent bytes that are no message", new BitSet());
    Ranks.run(
        3,
        ReferenceBackend.openAsProcesses(3, 3, ReferenceOptions.defaults()),
        CommunicatorConfig.defaults(),
        (comm, stream) -> {
          synchronize(comm, stream);
          connected.await();
          switch (comm.rank()) {
            case 0 -> received.await();
            case 1 -> {
              state(comm).receiveFailure(failure);
              state(comm).hostedRank(1).revoke();
              received.await();
            }
            default -> {
              while (state(comm).rankState(1).presence() != Presence.REVOKED) {
                Thread.onSpinWait();
              }
              RankFailure known = state(comm).failure();
              received.countDown();
              assertEquals(failure, known);
              String text = comm.asyncError().get().getMessage();
              assertTrue(text.contains(failure.text()), text);
            }
          }
        });
  }
}
