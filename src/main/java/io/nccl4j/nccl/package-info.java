/** The NCCL backend, and what only NCCL has. */
package io.nccl4j.nccl;
