package io.nccl4j.examples.spark;

/** The backend of a stage, the same for all ranks. */
public enum BackendChoice {
  /** NCCL if Spark has assigned a GPU to the task, else the reference backend. */
  AUTO,

  /** NCCL, on the GPU that Spark has assigned to the task. */
  NCCL,

  /** The pure-Java reference backend. */
  REFERENCE
}
