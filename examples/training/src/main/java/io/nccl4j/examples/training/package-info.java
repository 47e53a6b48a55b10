/**
 * Data-parallel training with PyTorch: a {@code GradientReducer} averages gradients over all ranks
 * while PyTorch still computes others.
 */
package io.nccl4j.examples.training;
