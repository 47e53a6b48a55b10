/** An exchange of ids through a TCP store of PyTorch. Not exported. */
package io.nccl4j.internal.rendezvous.torch;
