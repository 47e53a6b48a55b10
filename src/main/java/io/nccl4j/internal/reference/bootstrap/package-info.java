/**
 * How ranks of the reference backend find each other: the listening endpoint of a process, the
 * handshake and messages of its connections, and the meetings in which ranks become a communicator.
 */
package io.nccl4j.internal.reference.bootstrap;
