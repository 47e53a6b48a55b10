/**
 * The pure-Java backend: the same contract without a GPU and without native code. It serves to
 * verify results and to run GPU programs on machines that have no GPU.
 *
 * <p>The implementation is in packages that are not exported: drivers, ranks, streams, bootstrap,
 * collectives, links between ranks, and arithmetic. {@code docs/architecture.md} describes them.
 */
package io.nccl4j.reference;
