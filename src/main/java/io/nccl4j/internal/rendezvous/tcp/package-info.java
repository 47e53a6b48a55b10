/** Exchange of ids over TCP: rank 0 is the server, the other ranks are clients. Not exported. */
package io.nccl4j.internal.rendezvous.tcp;
