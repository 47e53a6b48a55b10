/**
 * How the ranks of one run find each other and come to share a {@link io.nccl4j.UniqueId}.
 *
 * <p>A {@link io.nccl4j.rendezvous.Rendezvous} is one rank's place at the meeting. It is made for
 * threads of one process ({@link io.nccl4j.rendezvous.InProcessRendezvous}), over a directory that
 * all ranks see ({@link io.nccl4j.rendezvous.FileRendezvous}), over the network ({@link
 * io.nccl4j.rendezvous.TcpRendezvous}), through a TCP store of PyTorch such as torchrun's ({@link
 * io.nccl4j.rendezvous.TorchStoreRendezvous}), over an all-gather of texts that the ranks'
 * framework has ({@link io.nccl4j.rendezvous.AllGatherRendezvous}), or from what the launcher of
 * the process left in its environment ({@link io.nccl4j.rendezvous.Launch}), which is what most
 * programs want.
 *
 * <p>Here belongs what happens before a communicator exists, and nothing after it. The protocols
 * are in packages that are not exported. They know neither this package nor each other, and fail
 * with an exception of their own, of which {@link io.nccl4j.rendezvous.RendezvousException} is
 * made. No native code is called.
 */
package io.nccl4j.rendezvous;
