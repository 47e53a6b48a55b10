/**
 * What the listeners of {@code reference} and {@code rendezvous} share: keys and proofs from a
 * secret that both sides know, an authenticated cipher, the bound on connections that have proved
 * nothing yet, and warnings that do not flood a log. Not exported.
 *
 * <p>Message formats do not belong here; each protocol has its own.
 */
package io.nccl4j.wire;
