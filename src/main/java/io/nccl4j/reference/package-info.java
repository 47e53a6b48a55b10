/**
 * The pure-Java backend: the same contract with no GPU and no native code, each rank a thread of
 * this or another process. It is there to prove numbers and to run GPU programs where there is no
 * GPU.
 *
 * <p>What it consists of is in packages that are not exported: drivers, ranks, streams, the
 * bootstrap, the collectives, the links between ranks, and the arithmetic. {@code
 * docs/architecture.md} describes them.
 *
 * <p>Steady state allocates nothing on the heap outside groups: queue entries, transfers, messages
 * and arrays are reused.
 */
package io.nccl4j.reference;
