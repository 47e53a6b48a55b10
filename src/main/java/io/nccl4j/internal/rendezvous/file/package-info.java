/** An exchange of ids through files in a directory that all ranks see. Not exported. */
package io.nccl4j.internal.rendezvous.file;
