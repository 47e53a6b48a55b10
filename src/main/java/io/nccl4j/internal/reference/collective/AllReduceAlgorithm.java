package io.nccl4j.internal.reference.collective;

/** The ways to carry out an all-reduce. */
public enum AllReduceAlgorithm {
  DIRECT,
  RING,
  TREE
}
