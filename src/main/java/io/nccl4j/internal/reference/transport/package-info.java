/**
 * How data gets from one rank of the reference backend to another: within a process, through memory
 * that processes of a host share, or over TCP.
 */
package io.nccl4j.internal.reference.transport;
