package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.rendezvous.Member;
import io.nccl4j.rendezvous.Secret;
import io.nccl4j.rendezvous.TcpRendezvous;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

/** When a process stops listening for the ranks of an id that no communicator came of. */
class UnusedIdTest {
  private final Site site = new Site();
  private final ReferenceBackend backend =
      SeparateSites.open(1, ReferenceOptions.defaults(), List.of(site));

  @Test
  void failedRendezvousClosesItsId() throws Exception {
    Secret secret = Secret.of("a secret of a test that is long");
    Member member = Member.of(0, 2).withTimeout(Duration.ofMillis(300));
    try (TcpRendezvous place = TcpRendezvous.at("127.0.0.1", 0, secret, member)) {
      assertThrows(NcclTimeoutException.class, () -> place.exchange(backend));
      awaitDeaf(Duration.ofSeconds(3));
    }
  }

  @Test
  void failedCommunicatorClosesItsId() throws Exception {
    UniqueId id = backend.newUniqueId();
    assertNotNull(site.location().address());
    CommunicatorConfig soon = CommunicatorConfig.defaults().withTimeout(Duration.ofMillis(300));
    assertThrows(NcclTimeoutException.class, () -> backend.communicator(id, 2, 0, soon));
    // Ranks that were under way still hear why they came in vain.
    awaitDeaf(Duration.ofSeconds(10));
  }

  private void awaitDeaf(Duration longest) throws InterruptedException {
    Deadline deadline = Deadline.after(longest);
    while (site.location().address() != null) {
      assertTrue(!deadline.passed(), () -> "it listens at " + site.location().address());
      Thread.sleep(10);
    }
  }
}
