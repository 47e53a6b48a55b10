package io.nccl4j.reference;

/** How data gets from one rank to another; ranks of one process always share its memory. */
public enum Transport {
  /**
   * Through memory that processes of one host share, and over TCP between hosts. Where there is no
   * room for a link's memory, it goes over TCP too, and a warning says so.
   */
  AUTO,
  /** Over TCP between all processes, also of one host. */
  TCP
}
