/**
 * Shows what nccl4j does on the GPU at hand: the contract suite, a cross-check against the
 * reference backend, bandwidth, call latency, one communicator shared with another language. Each
 * step is a process of its own with a deadline; what they saw becomes a JSON file and a page.
 *
 * <p>{@link io.nccl4j.tools.evidence.Evidence} is the command, {@link
 * io.nccl4j.tools.evidence.Child} the program of every step.
 */
package io.nccl4j.tools.evidence;
