package io.nccl4j.internal.reference.stream;

import io.nccl4j.internal.reference.rank.IdleStrategy;

/**
 * One entry of a stream's queue.
 *
 * @param stream the stream, which a pending task keeps reachable
 * @param traced the trace that this task belongs to, or null
 */
public record StreamTask(ReferenceStream stream, Action action, TracedTasks traced) {
  /** The work of a task. */
  public interface Action {
    /** Runs the task in the stream's worker thread. */
    void run(IdleStrategy idleStrategy);
  }
}
