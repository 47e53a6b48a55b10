/** NDArrays of DJL, on its PyTorch engine, as buffers. */
package io.nccl4j.djl;
