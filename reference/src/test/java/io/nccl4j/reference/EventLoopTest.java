package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.reference.ReferenceCommunicator;
import io.nccl4j.internal.reference.bootstrap.Bootstrap;
import io.nccl4j.internal.reference.bootstrap.BootstrapKey;
import io.nccl4j.internal.reference.bootstrap.BootstrapTarget;
import io.nccl4j.internal.reference.bootstrap.InitBootstrap;
import io.nccl4j.internal.reference.bootstrap.Message;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.spi.Contract;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** The event loop: its end after an error, and the start of another one. */
class EventLoopTest {
  private static final CommunicatorConfig CONFIG =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(20));

  /** Makes the first event loop that notifies it fail. */
  private static final class FailingListener implements Bootstrap.StateListener {
    private boolean failed;

    @Override
    public void onState(int expected, Message.Body state) {
      if (!failed) {
        failed = true;
        throw new OutOfMemoryError("thrown by a test");
      }
    }

    @Override
    public void onRejected(int rank, String text) {
      // No rank is refused here.
    }

    @Override
    public void addSilent(BitSet ranks) {
      // All ranks ask.
    }
  }

  private final List<ProcessEndpoint> endpoints =
      List.of(new ProcessEndpoint(), new ProcessEndpoint());
  private final Backend backend = ReferenceBackend.open(2, ReferenceOptions.defaults(), endpoints);

  @Test
  void errorEndsTheLoopAndTheNextCommunicatorStartsAnother() throws Exception {
    failLoop();
    assertEquals(3, sum());
    assertEquals(3, sum());
  }

  @Test
  void errorFailsRanksThatWaitForOthers() throws Exception {
    UniqueId id = backend.newUniqueId();
    FutureTask<Communicator> waiting = start(() -> backend.newCommunicator(id, 2, 0, CONFIG));
    Deadline deadline = Deadline.after(Duration.ofSeconds(20));
    while (endpoints.getFirst().target(id) == null) {
      assertTrue(!deadline.passed(), "the rank did not arrive");
      Thread.sleep(5);
    }
    failLoop();
    assertFailedByTheLoop(waiting);
    assertEquals(3, sum());
  }

  @Test
  void errorFailsAWaitingGrowAndOneWithAnId() throws Exception {
    Communicator one = backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG);
    Communicator other = backend.newCommunicator(backend.newUniqueId(), 1, 0, CONFIG);
    UniqueId growId = one.newGrowId();
    UniqueId otherId = other.newGrowId();
    FutureTask<Communicator> waiting = start(() -> one.grow(2, growId, CONFIG));
    BootstrapKey grow = new BootstrapKey(BootstrapKey.GROW, new BitSet(), 0);
    Bootstrap bootstrap =
        ((ReferenceCommunicator) Contract.get().driver(one))
            .hostedRank()
            .communicator()
            .bootstraps()
            .growBootstrap(grow)
            .bootstrap(2);
    Deadline deadline = Deadline.after(Duration.ofSeconds(20));
    while (bootstrap.awaited().cardinality() > 1) {
      assertTrue(!deadline.passed(), "the rank did not arrive");
      Thread.sleep(5);
    }
    failLoop();
    assertFailedByTheLoop(waiting);
    String later =
        assertThrows(NcclRemoteException.class, () -> other.grow(2, otherId, CONFIG)).getMessage();
    assertTrue(later.contains("java.lang.OutOfMemoryError: thrown by a test"), later);
    one.close();
    other.close();
    assertEquals(0, endpoints.getFirst().openTargets());
  }

  @Test
  void errorIsReportedToAllRanksOfOpenCommunicators() throws Exception {
    UniqueId id = backend.newUniqueId();
    FutureTask<Communicator> first = start(() -> backend.newCommunicator(id, 2, 0, CONFIG));
    try (Communicator one = backend.newCommunicator(id, 2, 1, CONFIG);
        Communicator zero = first.get(30, TimeUnit.SECONDS);
        Stream stream = one.newStream();
        Stream other = zero.newStream();
        Buffer value = one.newBuffer(DataType.INT32, 1);
        Buffer values = zero.newBuffer(DataType.INT32, 1)) {
      failLoop();
      long start = System.nanoTime();
      one.allReduce(value, value, ReduceOp.SUM, stream);
      zero.allReduce(values, values, ReduceOp.SUM, other);
      String text = assertThrows(NcclRemoteException.class, stream::synchronize).getMessage();
      assertTrue(text.contains("rank 0 failed"), text);
      assertTrue(text.contains("java.lang.OutOfMemoryError: thrown by a test"), text);
      String own = assertThrows(NcclRemoteException.class, other::synchronize).getMessage();
      assertTrue(own.contains("java.lang.OutOfMemoryError: thrown by a test"), own);
      long took = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - start);
      assertTrue(took < 10, () -> "only after " + took + " s");
      one.abort();
      zero.abort();
    }
  }

  @Test
  void everyCommunicatorNoticesALossWhileTheLoggerIsBlocked() throws Exception {
    List<Communicator> communicators = new ArrayList<>();
    try (BlockedLogger blocked = new BlockedLogger(ProcessEndpoint.class)) {
      for (int number = 0; number < 2; number++) {
        UniqueId id = backend.newUniqueId();
        FutureTask<Communicator> other = start(() -> backend.newCommunicator(id, 2, 1, CONFIG));
        communicators.add(backend.newCommunicator(id, 2, 0, CONFIG));
        communicators.add(other.get(30, TimeUnit.SECONDS));
      }
      endpoints.getLast().die();
      assertNoticesLoss(communicators.get(0));
      assertNoticesLoss(communicators.get(2));
      assertTrue(blocked.reached().await(20, TimeUnit.SECONDS), "the loss was not logged");
    } finally {
      communicators.forEach(Communicator::abort);
    }
  }

  private static void assertNoticesLoss(Communicator survivor) throws InterruptedException {
    Deadline deadline = Deadline.after(Duration.ofSeconds(20));
    while (survivor.asyncError().isEmpty()) {
      assertTrue(!deadline.passed(), () -> survivor + " did not notice the loss");
      Thread.sleep(5);
    }
    assertEquals(Set.of(1), survivor.asyncError().get().failedRanks());
  }

  private static void assertFailedByTheLoop(FutureTask<Communicator> waiting) {
    ExecutionException failed =
        assertThrows(ExecutionException.class, () -> waiting.get(10, TimeUnit.SECONDS));
    assertInstanceOf(NcclRemoteException.class, failed.getCause());
    String text = failed.getCause().getMessage();
    assertTrue(text.contains("java.lang.OutOfMemoryError: thrown by a test"), text);
  }

  /** Makes the event loop of the first endpoint fail; ranks that wait there fail soon. */
  private void failLoop() {
    UniqueId id = backend.newUniqueId();
    String options = ReferenceOptions.defaults().toString();
    BootstrapTarget.JoinRequest first = new BootstrapTarget.JoinRequest(2, 0, options, null);
    InitBootstrap.of(endpoints.getFirst(), id, InitBootstrap.CONNECT, first)
        .addListener(first, new FailingListener());
    long start = System.nanoTime();
    String text =
        assertThrows(NcclRemoteException.class, () -> backend.newCommunicator(id, 2, 1, CONFIG))
            .getMessage();
    assertTrue(text.contains("OutOfMemoryError: thrown by a test"), text);
    long took = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - start);
    assertTrue(took < 10, () -> "only after " + took + " s");
  }

  private int sum() throws Exception {
    UniqueId id = backend.newUniqueId();
    FutureTask<Integer> first = start(() -> sum(id, 0));
    int sum = sum(id, 1);
    assertEquals(sum, first.get(30, TimeUnit.SECONDS));
    return sum;
  }

  private int sum(UniqueId id, int rank) {
    try (Communicator comm = backend.newCommunicator(id, 2, rank, CONFIG);
        Stream stream = comm.newStream();
        Buffer value = comm.newBuffer(DataType.INT32, 1)) {
      DataType.INT32.setLong(value.segment(), 0, rank + 1);
      comm.allReduce(value, value, ReduceOp.SUM, stream);
      stream.synchronize();
      return (int) DataType.INT32.getLong(value.segment(), 0);
    }
  }

  private static <T> FutureTask<T> start(java.util.concurrent.Callable<T> program) {
    FutureTask<T> task = new FutureTask<>(program);
    Thread.ofPlatform().daemon().start(task);
    return task;
  }
}
