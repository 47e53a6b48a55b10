/** The service by which {@link io.nccl4j.Backend} finds the reference backend. */
package io.nccl4j.internal.reference.provider;
