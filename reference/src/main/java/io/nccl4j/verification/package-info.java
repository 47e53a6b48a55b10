/**
 * Checks NCCL while it runs, with the pure-Java reference: {@link
 * io.nccl4j.verification.Verification} computes some of NCCL's results again and compares them, and
 * {@link io.nccl4j.verification.CallCheck} compares the calls of all ranks before NCCL gets them.
 */
package io.nccl4j.verification;
