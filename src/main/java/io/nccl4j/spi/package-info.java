/**
 * What a backend implements, and what it may ask of the contract in return. Not exported: programs
 * see {@code io.nccl4j}, whose classes check arguments and delegate to these drivers.
 *
 * <p>Drivers see drivers and value types, never the classes in front of them. {@link
 * io.nccl4j.spi.Contract} is for the few public classes of a backend that show more of an object of
 * the contract than the contract does.
 */
package io.nccl4j.spi;
