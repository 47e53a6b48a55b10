/**
 * Rendezvous: how the ranks of a run find each other and exchange a {@link io.nccl4j.UniqueId}.
 *
 * <p>Each rank has its own {@link io.nccl4j.rendezvous.Rendezvous}. Most programs get it from
 * {@link io.nccl4j.rendezvous.LaunchEnvironment}, which reads what the launcher set in the
 * environment. The ranks meet at {@linkplain io.nccl4j.rendezvous.Rendezvous#tcp rank 0}, in
 * {@linkplain io.nccl4j.rendezvous.Rendezvous#files a directory}, in {@linkplain
 * io.nccl4j.rendezvous.Rendezvous#torchStore torchrun's store}, or over {@linkplain
 * io.nccl4j.rendezvous.Rendezvous#allGather a framework's all-gather}.
 *
 * <p>This package covers only what happens before a communicator exists, and calls no native code.
 * The exchange is in a package that is not exported and does not depend on this one.
 */
package io.nccl4j.rendezvous;
