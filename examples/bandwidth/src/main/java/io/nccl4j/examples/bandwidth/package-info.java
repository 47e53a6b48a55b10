/** A bandwidth measurement in about 100 lines, as a user of nccl4j would write it. */
package io.nccl4j.examples.bandwidth;
