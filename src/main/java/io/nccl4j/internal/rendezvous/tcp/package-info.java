/** Rank 0 as a server of ids and the other ranks as its clients, over TCP. Not exported. */
package io.nccl4j.internal.rendezvous.tcp;
