/** Tensors of the JavaCPP presets for PyTorch ({@code org.bytedeco:pytorch}) as buffers. */
package io.nccl4j.pytorch;
