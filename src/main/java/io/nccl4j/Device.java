package io.nccl4j;

/**
 * One device of a backend: a GPU, or one of the reference backend's places for a rank.
 *
 * @param index its number in this process, from 0; on CUDA what {@code CUDA_VISIBLE_DEVICES}
 *     leaves, renumbered
 * @param name its product name
 * @param pciBusId its PCI bus id as CUDA prints it, or an empty string where there is none
 * @param memoryBytes its memory in bytes; on the reference backend the memory of the machine, or of
 *     the container, that all its devices share
 */
public record Device(int index, String name, String pciBusId, long memoryBytes) {}
