/**
 * The contract suite: written once against {@code io.nccl4j}, run on every backend. Each {@code
 * *Contract} class is one topic, {@link io.nccl4j.contract.ContractSuite} holds them all, and a
 * concrete subclass of that per backend says what it runs on.
 */
package io.nccl4j.contract;
