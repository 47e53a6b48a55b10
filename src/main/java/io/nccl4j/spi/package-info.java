/**
 * The interfaces that a backend implements, and the services that it may use in return. Not
 * exported: programs use {@code io.nccl4j}, whose classes validate arguments and delegate to these
 * drivers.
 *
 * <p>Drivers refer to drivers and value types, never to the public classes that delegate to them.
 * {@link io.nccl4j.spi.Contract} is for the few public classes of a backend that extend the objects
 * of {@code io.nccl4j}.
 */
package io.nccl4j.spi;
