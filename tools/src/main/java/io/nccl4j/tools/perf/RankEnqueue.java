package io.nccl4j.tools.perf;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;

/** Enqueues one operation on one rank. */
@FunctionalInterface
interface RankEnqueue {
  /** Enqueues the operation, which ignores {@code op} and {@code root} if it takes none. */
  void enqueue(Communicator comm, Buffer send, Buffer recv, ReduceOp op, int root, Stream stream);
}
