package io.nccl4j.tools.evidence;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.UniqueId;
import io.nccl4j.rendezvous.FileRendezvous;
import io.nccl4j.rendezvous.RankInfo;
import io.nccl4j.rendezvous.Rendezvous;
import java.time.Duration;

/** Creates communicators of the ranks of a step, each of which is a separate process. */
final class Peers implements AutoCloseable {
  private static final Duration RENDEZVOUS_TIMEOUT = Duration.ofSeconds(30);

  private final Rendezvous rendezvous;

  /** Connects to the other ranks through the child's directory; a single rank does not. */
  Peers(Child child) {
    this.rendezvous =
        child.size == 1
            ? null
            : FileRendezvous.in(
                child.meet, RankInfo.of(child.rank, child.size).withTimeout(RENDEZVOUS_TIMEOUT));
  }

  /** Creates a communicator of all ranks; each rank must call this equally often. */
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
