/**
 * Rendezvous: how the ranks of a run find each other and exchange a {@link io.nccl4j.UniqueId}.
 *
 * <p>Each rank has its own {@link io.nccl4j.rendezvous.Rendezvous}. Most programs get it from
 * {@link io.nccl4j.rendezvous.LaunchEnvironment}, which reads what the launcher set in the
 * environment. The implementations work
 *
 * <ul>
 *   <li>among threads of one process: {@link io.nccl4j.rendezvous.InProcessRendezvous};
 *   <li>through files in a shared directory: {@link io.nccl4j.rendezvous.FileRendezvous};
 *   <li>over the network: {@link io.nccl4j.rendezvous.TcpRendezvous};
 *   <li>through a PyTorch TCP store such as torchrun's: {@link
 *       io.nccl4j.rendezvous.TorchStoreRendezvous};
 *   <li>over a framework's all-gather of strings: {@link io.nccl4j.rendezvous.AllGatherRendezvous}.
 * </ul>
 *
 * <p>This package covers only what happens before a communicator exists, and calls no native code.
 * The protocols are in packages that are not exported; they depend neither on this package nor on
 * each other.
 */
package io.nccl4j.rendezvous;
