/**
 * What the listeners of {@code reference} and {@code rendezvous} share: keys and proofs from a
 * secret that both sides know, an authenticated cipher for messages, and the bound on connections
 * that have proved nothing yet. Not exported.
 *
 * <p>Message formats do not belong here; each protocol has its own.
 */
package io.nccl4j.internal.auth;
