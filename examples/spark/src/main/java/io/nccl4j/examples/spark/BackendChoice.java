package io.nccl4j.examples.spark;

/** What carries out the collectives of a stage. All its ranks choose alike. */
public enum BackendChoice {
  /** NCCL where Spark has given the task a GPU, else the reference. */
  AUTO,

  /** NCCL, on the GPU that Spark has given the task. */
  NCCL,

  /** The pure-Java reference. */
  REFERENCE
}
