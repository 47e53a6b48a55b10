package io.nccl4j.plugin;

import org.jspecify.annotations.NullMarked;

/**
 * One event of NCCL's profiler interface.
 *
 * <p>A {@code communicator} is NCCL's number of it, the same on all ranks; a process may have
 * several ranks of one. An {@code id} is unique in the process; that of what has begun reappears in
 * its {@link Stopped}. {@code nanos} is {@link System#nanoTime} when NCCL reported the event, a
 * {@code function} such as {@code AllReduce}, and a {@code type} such as {@code ncclFloat32}. If
 * events were dropped, counterparts are missing.
 */
@NullMarked
public sealed interface ProfilerEvent {
  /**
   * A rank of a communicator was created.
   *
   * @param communicator NCCL's number of the communicator
   * @param rank the rank that it concerns
   * @param name the name in the communicator's configuration, or empty
   * @param ranks the number of ranks
   * @param nodes the number of hosts
   */
  record CommunicatorCreated(long communicator, int rank, String name, int ranks, int nodes)
      implements ProfilerEvent {}

  /**
   * A rank of a communicator was destroyed or aborted.
   *
   * @param communicator NCCL's number of the communicator
   * @param rank the rank that it concerns
   */
  record CommunicatorDestroyed(long communicator, int rank) implements ProfilerEvent {}

  /**
   * A function of NCCL was called.
   *
   * @param id its number, unique in the process
   * @param nanos when NCCL reported it, as {@link System#nanoTime}
   * @param communicator NCCL's number of the communicator
   * @param rank the rank that it concerns
   * @param function such as {@code AllReduce}
   * @param count the number of elements, as passed to the function
   * @param type such as {@code ncclFloat32}
   * @param root the root, as passed to the function; -1 for a send or receive
   * @param stream the address of the CUDA stream
   * @param captured whether the stream is captured; then the operation runs with each launch of its
   *     graph, which NCCL does not report
   */
  record Called(
      long id,
      long nanos,
      long communicator,
      int rank,
      String function,
      long count,
      String type,
      int root,
      long stream,
      boolean captured)
      implements ProfilerEvent {}

  /**
   * A collective is launched, with what NCCL has chosen for it. It is {@link Stopped} when its
   * kernel is enqueued, not when it ends.
   *
   * <p>NCCL does not report every collective here: not those that consist of sends and receives,
   * which are {@link PointToPoint}s, and not the broadcasts of 2.29 and later, for which it has
   * kernels of their own.
   *
   * @param id its number, unique in the process
   * @param nanos when NCCL reported it, as {@link System#nanoTime}
   * @param call the {@link Called} that it belongs to
   * @param communicator NCCL's number of the communicator
   * @param rank the rank that it concerns
   * @param sequence the number of collectives of this function before it on this communicator
   * @param function such as {@code AllReduce}
   * @param sendAddress the address of this rank's input
   * @param receiveAddress the address of this rank's output
   * @param count the number of elements, as NCCL counts them: operations that only copy are counted
   *     in bytes, of type {@code ncclInt8}
   * @param type such as {@code ncclFloat32}
   * @param root the root, or -1
   * @param algorithm such as {@code RING}
   * @param protocol such as {@code SIMPLE}
   * @param channels the number of channels, which is the number of thread blocks
   * @param warps the number of warps of each
   */
  record Collective(
      long id,
      long nanos,
      long call,
      long communicator,
      int rank,
      long sequence,
      String function,
      long sendAddress,
      long receiveAddress,
      long count,
      String type,
      int root,
      String algorithm,
      String protocol,
      int channels,
      int warps)
      implements ProfilerEvent {}

  /**
   * A send or receive is launched. It is {@link Stopped} when its kernel is enqueued.
   *
   * @param id its number, unique in the process
   * @param nanos when NCCL reported it, as {@link System#nanoTime}
   * @param call the {@link Called} that it belongs to
   * @param communicator NCCL's number of the communicator
   * @param rank the rank that it concerns
   * @param function such as {@code AllReduce}
   * @param address the address of the buffer
   * @param count the number of elements, as NCCL counts them
   * @param type such as {@code ncclFloat32}
   * @param peer the other rank
   * @param channels the number of channels
   */
  record PointToPoint(
      long id,
      long nanos,
      long call,
      long communicator,
      int rank,
      String function,
      long address,
      long count,
      String type,
      int peer,
      int channels)
      implements ProfilerEvent {}

  /**
   * The kernel of an operation has begun on a channel; see {@link Profiler#kernelTimes}.
   *
   * @param id its number, unique in the process
   * @param nanos when NCCL reported it, as {@link System#nanoTime}
   * @param operation the {@link Collective} or {@link PointToPoint} that it belongs to
   * @param channel the channel, from 0
   * @param timer the GPU's global timer, in nanoseconds
   */
  record KernelStarted(long id, long nanos, long operation, int channel, long timer)
      implements ProfilerEvent {}

  /**
   * The kernel of an operation has ended on a channel.
   *
   * @param id that of the {@link KernelStarted}
   * @param nanos when NCCL reported it, as {@link System#nanoTime}
   * @param timer the GPU's global timer, in nanoseconds
   */
  record KernelStopped(long id, long nanos, long timer) implements ProfilerEvent {}

  /**
   * What an event reported has ended.
   *
   * @param id that of the event
   * @param nanos when NCCL reported it, as {@link System#nanoTime}
   */
  record Stopped(long id, long nanos) implements ProfilerEvent {}
}
