/** Exchange of ids through files in a directory that all ranks can access. Not exported. */
package io.nccl4j.internal.rendezvous.file;
