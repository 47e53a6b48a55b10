package io.nccl4j.tools.evidence;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.UniqueId;
import io.nccl4j.rendezvous.FileRendezvous;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import java.time.Duration;

/** This process's rank among the ranks of its step, each of which is a process of its own. */
final class Peers implements AutoCloseable {
  private static final Duration MEETING = Duration.ofSeconds(30);

  private final Rendezvous rendezvous;

  /** Meets the others in the child's folder; a rank that is alone meets nobody. */
  Peers(Child child) {
    this.rendezvous =
        child.size == 1
            ? null
            : FileRendezvous.in(
                child.meet, RankInfo.of(child.rank, child.size).withTimeout(MEETING));
  }

  /** Makes a communicator with all of them; each rank calls this equally often. */
  Communicator communicator(Backend backend, CommunicatorConfig config) {
    if (rendezvous != null) {
      return rendezvous.newCommunicator(backend, config);
    }
    UniqueId id = backend.newUniqueId();
    return backend.newCommunicator(id, 1, 0, config);
  }

  @Override
  public void close() {
    if (rendezvous != null) {
      rendezvous.close();
    }
  }
}
