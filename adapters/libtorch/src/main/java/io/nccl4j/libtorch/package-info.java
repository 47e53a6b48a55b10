/**
 * Wraps tensors of the libtorch that a framework has loaded into this process as nccl4j buffers,
 * through libtorch's stable C functions.
 */
package io.nccl4j.libtorch;
