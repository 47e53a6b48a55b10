/**
 * The contract suite: tests written once against {@code io.nccl4j} and run on every backend. Each
 * {@code *Contract} class covers one topic. {@link io.nccl4j.contract.ContractSuite} contains all
 * of them and has a concrete subclass for each backend.
 */
package io.nccl4j.contract;
