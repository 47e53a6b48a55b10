package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Group;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclRemoteException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.reference.bootstrap.BootstrapTarget;
import io.nccl4j.internal.reference.bootstrap.InitBootstrap;
import io.nccl4j.internal.reference.bootstrap.ProcessEndpoint;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.schedule.Layout;
import java.io.BufferedReader;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CancellationException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Ranks that are refused since they join late, twice, or with arguments that differ. */
class JoinFaultsTest {
  private static final CommunicatorConfig SOON =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(1));
  private static final CommunicatorConfig LATE =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(30));
  private static final ReferenceOptions OPTIONS = ReferenceOptions.defaults();

  @Test
  void missingRanksOfAConnectAreNamed() {
    Backend backend = ReferenceBackend.open(4);
    UniqueId id = backend.newUniqueId();
    NcclTimeoutException thrown =
        assertThrows(
            NcclTimeoutException.class,
            () ->
                Group.run(
                    () -> {
                      backend.newCommunicator(id, 4, 0, SOON);
                      backend.newCommunicator(id, 4, 2, SOON);
                    }));
    assertTrue(thrown.getMessage().contains("ranks 1, 3 of 4 did not join"), thrown::toString);
    assertEquals(0, ProcessEndpoint.ofThisProcess().openTargets());
  }

  @Test
  void idOfAnEndedProcessIsRefusedAtOnce() throws Exception {
    Process process =
        new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-cp",
                RankProcesses.classPath(),
                IdMaker.class.getName())
            .start();
    String hex;
    try (BufferedReader lines = process.inputReader()) {
      hex = lines.readLine();
    }
    assertEquals(0, process.waitFor());
    UniqueId id = UniqueId.fromHex(hex);
    Backend backend = ReferenceBackend.open(2);
    NcclRemoteException refused =
        assertThrows(NcclRemoteException.class, () -> backend.newCommunicator(id, 2, 1, LATE));
    String text = refused.getMessage();
    assertTrue(text.contains("process " + process.pid() + " on "), text);
    assertTrue(text.contains("which created the id, cannot be reached"), text);
    assertEquals(0, ProcessEndpoint.ofThisProcess().openTargets());
  }

  @Test
  void interruptDuringAConnectIsReported() {
    List<ProcessEndpoint> endpoints = List.of(new ProcessEndpoint(), new ProcessEndpoint());
    Backend backend = ReferenceBackend.open(2, OPTIONS, endpoints);
    UniqueId id = backend.newUniqueId();
    Thread.currentThread().interrupt();
    try {
      assertThrows(CancellationException.class, () -> backend.newCommunicator(id, 2, 1, LATE));
    } finally {
      assertTrue(Thread.interrupted(), "the interrupt status is preserved");
    }
    assertEquals(0, endpoints.get(1).openTargets());
  }

  @Test
  void rankThatDiffersFromEarlierRanksIsRefused() {
    Backend backend = ReferenceBackend.open(4);
    UniqueId id = backend.newUniqueId();
    BootstrapTarget.JoinRequest first =
        new BootstrapTarget.JoinRequest(3, 0, OPTIONS.toString(), null);
    InitBootstrap.of(ProcessEndpoint.ofThisProcess(), id, InitBootstrap.CONNECT, first)
        .admit(first, null);
    assertRefused(backend, id, 3, 0, "rank 0 has already joined");
    assertRefused(backend, id, 4, 1, "rank 1 expects 4 ranks, the ranks before it 3");
    Backend other = ReferenceBackend.open(4, OPTIONS.withLayout(Layout.defaults().withChannels(1)));
    assertRefused(other, id, 3, 1, "other options");
    NcclTimeoutException late =
        assertThrows(NcclTimeoutException.class, () -> backend.newCommunicator(id, 3, 1, SOON));
    String text = late.getMessage();
    assertTrue(text.contains("rank 2 of 3 did not join; refused: rank 1 has other options"), text);
    assertEquals(0, ProcessEndpoint.ofThisProcess().openTargets());
  }

  @Test
  void refusedRemoteRankDoesNotFailTheOthers() throws Exception {
    List<ProcessEndpoint> endpoints = List.of(new ProcessEndpoint(), new ProcessEndpoint());
    Backend backend = ReferenceBackend.open(2, OPTIONS, endpoints);
    UniqueId id = backend.newUniqueId();
    FutureTask<Communicator> first = start(() -> backend.newCommunicator(id, 2, 0, LATE));
    while (endpoints.get(0).target(id) == null) {
      Thread.sleep(1);
    }
    Backend elsewhere = ReferenceBackend.open(2);
    assertRefused(elsewhere, id, 3, 2, "rank 2 expects 3 ranks, the ranks before it 2");
    try (Communicator second = backend.newCommunicator(id, 2, 1, LATE);
        Communicator there = first.get(20, TimeUnit.SECONDS)) {
      assertEquals(1, second.rank());
      assertEquals(0, there.rank());
    }
  }

  @Test
  void rankThatJoinsTwiceElsewhere_isRefusedOnce() throws Exception {
    List<ProcessEndpoint> endpoints = List.of(new ProcessEndpoint(), new ProcessEndpoint());
    Backend backend = ReferenceBackend.open(3, OPTIONS, endpoints);
    UniqueId id = backend.newUniqueId();
    FutureTask<Communicator> second = start(() -> backend.newCommunicator(id, 3, 1, LATE));
    // Both ranks 1 are in the process that did not create the id.
    while (endpoints.get(0).target(id) == null) {
      Thread.sleep(1);
    }
    assertRefused(backend, id, 3, 1, "rank 1 has already joined");
    FutureTask<Communicator> third = start(() -> backend.newCommunicator(id, 3, 2, LATE));
    try (Communicator first = backend.newCommunicator(id, 3, 0, LATE);
        Communicator one = second.get(20, TimeUnit.SECONDS);
        Communicator two = third.get(20, TimeUnit.SECONDS)) {
      assertEquals(0, first.rank());
      assertEquals(1, one.rank());
      assertEquals(2, two.rank());
    }
  }

  @Test
  void rankThatArrivesAfterTheFailure_isNotConnected() {
    List<ProcessEndpoint> endpoints = List.of(new ProcessEndpoint(), new ProcessEndpoint());
    UniqueId id = ReferenceBackend.open(2, OPTIONS, endpoints).newUniqueId();
    BootstrapTarget.JoinRequest request =
        new BootstrapTarget.JoinRequest(2, 1, OPTIONS.toString(), null);
    BootstrapTarget target = InitBootstrap.of(endpoints.get(1), id, InitBootstrap.CONNECT, request);
    ((InitBootstrap) target).fail("failed by a test");
    Deadline deadline = Deadline.after(LATE.timeout().orElseThrow());
    NcclRemoteException thrown =
        assertThrows(NcclRemoteException.class, () -> target.admit(request, deadline));
    assertEquals("failed by a test", thrown.text());
    assertNull(endpoints.get(1).address().address(), "it listens for a connection to the creator");
  }

  @Test
  void rankThatArrivesAfterTheEnd_isRefused() throws Exception {
    List<ProcessEndpoint> endpoints = List.of(new ProcessEndpoint(), new ProcessEndpoint());
    Backend backend = ReferenceBackend.open(2, OPTIONS, endpoints);
    UniqueId id = backend.newUniqueId();
    BootstrapTarget.JoinRequest request =
        new BootstrapTarget.JoinRequest(2, 1, OPTIONS.toString(), null);
    BootstrapTarget target = InitBootstrap.of(endpoints.get(1), id, InitBootstrap.CONNECT, request);
    FutureTask<Communicator> first = start(() -> backend.newCommunicator(id, 2, 0, LATE));
    try (Communicator second = backend.newCommunicator(id, 2, 1, LATE);
        Communicator there = first.get(20, TimeUnit.SECONDS)) {
      Deadline deadline = Deadline.after(LATE.timeout().orElseThrow());
      NcclInvalidUsageException thrown =
          assertThrows(NcclInvalidUsageException.class, () -> target.admit(request, deadline));
      assertEquals("rank 1 has already joined; each rank joins once", thrown.text());
      assertEquals(1, second.rank());
      assertEquals(0, there.rank());
    }
  }

  private static FutureTask<Communicator> start(Callable<Communicator> call) {
    FutureTask<Communicator> task = new FutureTask<>(call);
    Thread.ofPlatform().daemon().start(task);
    return task;
  }

  private static void assertRefused(Backend backend, UniqueId id, int size, int rank, String text) {
    NcclInvalidUsageException thrown =
        assertThrows(
            NcclInvalidUsageException.class, () -> backend.newCommunicator(id, size, rank, LATE));
    assertTrue(thrown.getMessage().contains(text), thrown::toString);
  }

  @Test
  void idOfAnotherBackendIsRefused() {
    byte[] bytes = new byte[UniqueId.BYTES];
    bytes[0] = 1;
    IllegalArgumentException thrown =
        assertThrows(
            IllegalArgumentException.class,
            () -> ReferenceBackend.open(1).newCommunicator(UniqueId.of(bytes), 1, 0, SOON));
    assertTrue(
        thrown.getMessage().contains("was made by NCCL, but this rank uses the reference backend"),
        thrown::toString);
  }
}
