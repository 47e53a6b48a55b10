/** A measurement in about 100 lines: what a user of nccl4j would write. */
package io.nccl4j.examples.bandwidth;
