/** Tensors of the JavaCPP presets for PyTorch ({@code org.bytedeco:pytorch}) as nccl4j buffers. */
package io.nccl4j.pytorch;
