/** Exchange of ids through a PyTorch TCP store. Not exported. */
package io.nccl4j.internal.rendezvous.torch;
