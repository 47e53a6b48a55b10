package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.NcclSystemException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.reference.bootstrap.BootstrapTarget;
import io.nccl4j.internal.reference.bootstrap.InitBootstrap;
import io.nccl4j.internal.reference.bootstrap.ProcessAddress;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.reference.bootstrap.ReferenceId;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A process stops listening for the ranks of an id that is not used. */
class UnusedIdTest {
  private static final CommunicatorConfig PATIENT =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(30));

  /** Less than the 5 s for which an id that has failed, but is not closed, is still known. */
  private static final Duration BEFORE_EXPIRY = Duration.ofMillis(4500);

  private final ProcessEndpoint endpoint = new ProcessEndpoint();
  private final Backend backend =
      ReferenceBackend.open(1, ReferenceOptions.defaults(), List.of(endpoint));

  @Test
  void makerThatDoesNotListenIsASystemError() {
    ProcessAddress maker =
        new ProcessAddress(UUID.randomUUID(), UUID.randomUUID(), null, 77, "elsewhere");
    ReferenceId id = new ReferenceId(maker, io.nccl4j.internal.reference.bootstrap.Secret.random());
    NcclSystemException failure =
        assertThrows(
            NcclSystemException.class,
            () -> backend.newCommunicator(id.toUniqueId(), 2, 1, PATIENT));
    assertTrue(
        failure
            .getMessage()
            .contains(
                maker
                    + " does not listen for ranks of other processes: NCCL4J_SOCKET_INTERFACE is"
                    + " none there, or no network interface with an address is up"),
        failure.getMessage());
  }

  @Test
  void failedRendezvousClosesItsId(@TempDir Path directory) throws Exception {
    RankInfo rankInfo = RankInfo.of(0, 2).withTimeout(Duration.ofMillis(300));
    try (Rendezvous rendezvous = Rendezvous.files(directory, rankInfo)) {
      assertThrows(NcclTimeoutException.class, () -> rendezvous.exchange(backend));
      awaitNotListening(BEFORE_EXPIRY);
    }
  }

  @Test
  void failedCommunicatorClosesItsId() throws Exception {
    UniqueId id = backend.newUniqueId();
    assertNotNull(endpoint.address().address());
    CommunicatorConfig soon = CommunicatorConfig.defaults().withTimeout(Duration.ofMillis(300));
    assertThrows(NcclTimeoutException.class, () -> backend.newCommunicator(id, 2, 0, soon));
    // Ranks that are still connecting have to learn the reason.
    awaitNotListening(Duration.ofSeconds(20));
  }

  @Test
  void closedIdEndsListening() throws Exception {
    UniqueId id = backend.newUniqueId();
    UniqueId other = backend.newUniqueId();
    assertNotNull(endpoint.address().address());
    backend.closeUniqueId(id);
    backend.closeUniqueId(id);
    Thread.sleep(700);
    assertNotNull(endpoint.address().address(), "another id needs it");
    backend.closeUniqueId(other);
    awaitNotListening(BEFORE_EXPIRY);
    String text =
        assertThrows(
                NcclInvalidUsageException.class, () -> backend.newCommunicator(id, 2, 0, PATIENT))
            .getMessage();
    assertTrue(text.contains("is no longer valid"), text);
  }

  @Test
  void closingAnIdFailsWaitingRanks() throws Exception {
    UniqueId id = backend.newUniqueId();
    FutureTask<Communicator> waiting =
        new FutureTask<>(() -> backend.newCommunicator(id, 2, 0, PATIENT));
    Thread.ofPlatform().daemon().start(waiting);
    Deadline deadline = Deadline.after(Duration.ofSeconds(20));
    while (endpoint.target(id) == null) {
      assertTrue(!deadline.passed(), "the rank did not arrive");
      Thread.sleep(5);
    }
    backend.closeUniqueId(id);
    ExecutionException failed =
        assertThrows(ExecutionException.class, () -> waiting.get(20, TimeUnit.SECONDS));
    assertInstanceOf(NcclRemoteException.class, failed.getCause());
    assertTrue(failed.getCause().getMessage().contains("closed " + id), failed::toString);
  }

  @Test
  void onlyTheCreatorOfAnIdMayCloseIt() {
    UniqueId id = Backend.reference(1).newUniqueId();
    String text =
        assertThrows(IllegalArgumentException.class, () -> backend.closeUniqueId(id)).getMessage();
    assertTrue(text.contains("only that process can close it"), text);
    Backend.reference(1).closeUniqueId(id);
  }

  @Test
  void newGrowId_closesTheIdOfAFailedGrow() throws Exception {
    CommunicatorConfig soon = CommunicatorConfig.defaults().withTimeout(Duration.ofMillis(300));
    Communicator comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, soon);
    UniqueId first = comm.newGrowId();
    assertThrows(NcclTimeoutException.class, () -> comm.grow(2, first, soon));
    UniqueId second = comm.newGrowId();
    assertNull(endpoint.target(first));
    assertFalse(endpoint.isValid(ReferenceId.of(first).secret()));
    assertNotNull(endpoint.target(second));
    comm.close();
    assertEquals(0, endpoint.openTargets());
    assertFalse(endpoint.isValid(ReferenceId.of(second).secret()));
  }

  @Test
  void idIsInvalidatedDespiteARefusedLocalRank() {
    UniqueId id = backend.newUniqueId();
    ProcessAddress elsewhere = new ProcessEndpoint().address();
    arrive(id, 0, elsewhere);
    String text =
        assertThrows(
                NcclInvalidUsageException.class, () -> backend.newCommunicator(id, 2, 0, PATIENT))
            .getMessage();
    assertTrue(text.contains("rank 0 has already joined"), text);
    arrive(id, 1, elsewhere);
    assertFalse(endpoint.isValid(ReferenceId.of(id).secret()));
  }

  private void arrive(UniqueId id, int rank, ProcessAddress from) {
    String options = ReferenceOptions.defaults().toString();
    BootstrapTarget.JoinRequest request = new BootstrapTarget.JoinRequest(2, rank, options, from);
    InitBootstrap.of(endpoint, id, InitBootstrap.CONNECT, request).admit(request, null);
  }

  private void awaitNotListening(Duration longest) throws InterruptedException {
    Deadline deadline = Deadline.after(longest);
    while (endpoint.address().address() != null) {
      assertTrue(!deadline.passed(), () -> "it listens at " + endpoint.address().address());
      Thread.sleep(10);
    }
  }
}
