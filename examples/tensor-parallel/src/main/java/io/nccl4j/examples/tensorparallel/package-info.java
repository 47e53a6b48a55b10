/** A Llama model of Jlama, divided among ranks, as a user of nccl4j would write it. */
package io.nccl4j.examples.tensorparallel;
