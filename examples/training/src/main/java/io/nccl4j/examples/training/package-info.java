/**
 * A model whose gradients a {@code GradientReducer} averages over all ranks while PyTorch still
 * computes others.
 */
package io.nccl4j.examples.training;
