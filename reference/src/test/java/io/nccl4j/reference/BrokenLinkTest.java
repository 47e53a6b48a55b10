package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.internal.reference.ReferenceCommunicator;
import io.nccl4j.internal.reference.rank.CommunicatorState;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.reference.transport.TcpSendLink;
import io.nccl4j.spi.Contract;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A link whose connection breaks while a rank sends. */
class BrokenLinkTest {
  private static final int SLICE_BYTES = 1000;

  @Test
  @Timeout(60)
  void senderContinuesUntilTheCauseIsKnown() {
    CountDownLatch reduced = new CountDownLatch(2);
    CountDownLatch sent = new CountDownLatch(1);
    Ranks.run(
        2,
        ReferenceBackend.openAsProcesses(
            2, 2, ReferenceOptions.defaults().withTransport(Transport.TCP)),
        CommunicatorConfig.defaults(),
        (comm, stream) -> {
          try (Buffer data = comm.newBuffer(DataType.INT8, SLICE_BYTES)) {
            comm.allReduce(data, data, ReduceOp.MAX, stream);
            stream.synchronize();
            // A rank that is still waiting would see the abort below.
            reduced.countDown();
            reduced.await();
            if (comm.rank() == 0) {
              CommunicatorState communicator =
                  ((ReferenceCommunicator) Contract.get().driver(comm)).hostedRank().communicator();
              TcpSendLink link =
                  (TcpSendLink) communicator.links().sendLink(Route.EXCHANGE, 7, comm.rank(), 1);
              while (!link.hasRoom()) {
                Thread.onSpinWait();
              }
              link.channel().close();
              try {
                for (int slice = 0; slice < 2; slice++) {
                  assertTrue(link.hasRoom());
                  link.send(data.segment(), 0, SLICE_BYTES, 0);
                }
              } finally {
                sent.countDown();
              }
            }
            sent.await();
          }
          comm.abort();
        });
  }
}
