/** The CUDA runtime: devices, streams, events, device and pinned buffers. */
package io.nccl4j.cuda;
