/** {@code nccl4j ras}: which ranks of a running job are late or lost, from NCCL's RAS service. */
package io.nccl4j.tools.ras;
