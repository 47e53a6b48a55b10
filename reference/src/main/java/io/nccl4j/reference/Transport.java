package io.nccl4j.reference;

import org.jspecify.annotations.NullMarked;

/**
 * The transport between ranks of different processes. Ranks of one process always use the memory of
 * that process.
 */
@NullMarked
public enum Transport {
  /**
   * Shared memory between processes of one host, TCP between hosts. A link whose shared memory one
   * of its processes cannot allocate or open, for example because they belong to different users,
   * uses TCP instead, and a warning is logged.
   */
  AUTO,
  /** TCP between all processes, including those of one host. */
  TCP
}
