/** NDArrays of DJL's PyTorch engine as nccl4j buffers. */
package io.nccl4j.djl;
