/**
 * Tests and measures nccl4j on the GPUs of this machine: the contract suite, a cross-check against
 * the reference backend, bandwidth, call latency, a communicator shared with another language. Each
 * step runs in separate processes with a deadline. The results are written as JSON and Markdown.
 *
 * <p>{@link io.nccl4j.tools.evidence.EvidenceCommand} is the command, {@link
 * io.nccl4j.tools.evidence.Child} the main class of every step.
 */
package io.nccl4j.tools.evidence;
