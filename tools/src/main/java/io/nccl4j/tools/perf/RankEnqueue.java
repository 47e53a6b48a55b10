package io.nccl4j.tools.perf;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;

/** Enqueues one operation of one rank. */
@FunctionalInterface
interface RankEnqueue {
  /** Enqueues it; an operator or a root that the operation does not take is not looked at. */
  void enqueue(Communicator comm, Buffer send, Buffer recv, ReduceOp op, int root, Stream stream);
}
