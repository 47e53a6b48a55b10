/**
 * Common types of the exchange protocols: a rank of a run, its backend, random tokens, and the
 * failure of an exchange, which {@code io.nccl4j.rendezvous} converts to its own exception. The
 * protocols are in the subpackages {@code tcp}, {@code file} and {@code torch}; none of them
 * depends on the public package. Not exported.
 */
package io.nccl4j.internal.rendezvous;
