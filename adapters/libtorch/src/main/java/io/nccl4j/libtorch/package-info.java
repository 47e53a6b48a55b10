/**
 * The libtorch that a framework has loaded into this process, asked about tensors through its
 * stable C functions, and what of a tensor a collective must know before it may touch it.
 */
package io.nccl4j.libtorch;
