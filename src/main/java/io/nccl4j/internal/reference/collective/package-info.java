/**
 * What one rank of the reference backend does in an operation: all-reduce over rings, trees or
 * memory that all ranks reach, other collectives, and messages between two ranks.
 */
package io.nccl4j.internal.reference.collective;
