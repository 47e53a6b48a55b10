/** The coverage of the NCCL and CUDA runtime APIs, {@code docs/api-coverage.md}. */
package io.nccl4j.coverage;
