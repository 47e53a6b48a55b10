/**
 * The exchange of ids: its stores, the values that ranks leave in them, and the failure of an
 * exchange, which {@code io.nccl4j.rendezvous} converts to its own exception. Does not depend on
 * that package. Not exported.
 */
package io.nccl4j.internal.rendezvous;
