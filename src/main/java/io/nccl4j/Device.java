package io.nccl4j;

import org.jspecify.annotations.NullMarked;

/**
 * A device of a backend: a GPU, or a simulated device of the reference backend.
 *
 * @param index its number in this process, from 0; on CUDA among the devices that {@code
 *     CUDA_VISIBLE_DEVICES} makes visible
 * @param name its product name
 * @param pciBusId its PCI bus id in CUDA's format, or an empty string if it has none
 * @param memoryBytes its memory in bytes; on the reference backend the memory of the machine or
 *     container, which all its devices share
 */
@NullMarked
public record Device(int index, String name, String pciBusId, long memoryBytes) {}
