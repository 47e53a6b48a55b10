package io.nccl4j.internal.reference.collective;

/** The algorithms of an all-reduce. */
public enum AllReduceAlgorithm {
  DIRECT,
  RING,
  TREE
}
