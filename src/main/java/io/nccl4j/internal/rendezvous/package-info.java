/**
 * What the ways of exchanging an id share: a rank of a run, its backend, random tokens, and the
 * failure of an exchange, which {@code io.nccl4j.rendezvous} turns into its own exception. Below it
 * are the protocols: {@code tcp}, {@code file} and {@code torch}. None of them knows the public
 * package. Not exported.
 */
package io.nccl4j.internal.rendezvous;
