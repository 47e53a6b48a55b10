/**
 * Authentication for the listeners of {@code reference} and {@code rendezvous}: keys and proofs
 * from a shared secret, an authenticated cipher for messages, and the limit on unauthenticated
 * connections. Each protocol defines its own message formats. Not exported.
 */
package io.nccl4j.internal.auth;
