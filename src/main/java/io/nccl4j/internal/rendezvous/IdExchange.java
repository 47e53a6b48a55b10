package io.nccl4j.internal.rendezvous;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.util.Deadline;
import java.io.Closeable;
import java.util.function.Supplier;

/** One rank's side of the exchange of ids. */
public interface IdExchange extends Closeable {
  /**
   * Exchanges the id of one round.
   *
   * @param backend the backend that this rank will use the id with
   * @param part what this rank has to do before it takes part; on rank 0 it returns the id, on
   *     others null. If it throws, the other ranks get the reason, and its exception is propagated
   */
  UniqueId exchange(int round, RankBackend backend, Supplier<UniqueId> part, Deadline deadline)
      throws InterruptedException, ExchangeFailedException;
}
