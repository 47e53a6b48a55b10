package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import io.nccl4j.spi.Awaited;
import io.nccl4j.spi.Background;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.CommunicatorDriver;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.SortedSet;
import java.util.concurrent.CompletionStage;
import java.util.function.Function;
import java.util.stream.LongStream;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/**
 * One rank of a group of ranks that exchange data through collective operations.
 *
 * {@snippet :
 * try (Communicator comm = backend.newCommunicator(id, worldSize, rank);
 *     Stream stream = comm.newStream();
 *     Buffer gradients = comm.newBuffer(DataType.FLOAT32, 1024)) {
 *   gradients.copyFromAsync(values, stream);
 *   comm.allReduce(gradients, gradients, ReduceOp.SUM, stream);
 *   gradients.copyTo(values, stream); // waits for the result
 * }
 * }
 *
 * <p>Operations enqueue work on a {@link Stream} and return. An operation is complete when the
 * stream has completed it.
 *
 * <p>Every rank calls the same collectives, with matching counts, types, operators and roots, in
 * the same order. {@code send} and {@code recv} must not overlap, except for the in-place form that
 * each method documents. A collective of count 0 does nothing; to wait for all ranks, use {@link
 * #barrier}. A send of count 0 still needs a matching receive. The caller owns the buffers, streams
 * and operators, and must keep them open until the stream has completed the operation.
 *
 * <p>Threading: one thread at a time may use a communicator; concurrent use is rejected where it is
 * detected. One thread at a time may use the communicators of one device, and every rank must
 * enqueue their operations in the same order: otherwise the kernels of two communicators may
 * deadlock. That is not checked, since several ranks may share a device. Only {@link #abort} and
 * {@link #asyncError} may be called from any thread at any time.
 *
 * <p>A thread that drives several ranks of one communicator calls their operations in one {@link
 * Group}. Outside a group the first call may wait for the others. If one thread calls the same
 * collective outside a group for two ranks that were created together, the second call throws an
 * {@link IllegalStateException}.
 *
 * <p>Arguments are validated before anything is launched. An invalid argument throws an {@link
 * IllegalArgumentException} that names the argument, its value and the rule; a closed object throws
 * an {@link IllegalStateException}; a missing argument throws a {@link NullPointerException}. In a
 * {@link Group}, an operation is validated when it is called; when the group ends, it is checked
 * again for objects closed since. A failure that the library reports is an {@link NcclException}.
 *
 * <p>If a communicator becomes unreachable without having been closed or aborted, a warning is
 * logged with the stack trace of its creation. It is not closed, because that would end it for the
 * other ranks too.
 *
 * @see <a
 *     href="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/colls.html">Collective
 *     communication functions</a>
 */
@NullMarked
public final class Communicator implements AutoCloseable {
  private static final int MAX_BYTES = 64 << 20;

  private final Backend backend;
  private final CommunicatorCore core;
  private final ChildCommunicators children;

  /**
   * Creates an unconnected communicator.
   *
   * @param rank this rank, or -1 if connecting determines it
   * @param size the number of ranks, or -1 if connecting determines it
   * @param lineage how the communicator is created
   * @param driver creates its driver
   */
  Communicator(
      Backend backend,
      CommunicatorConfig config,
      int device,
      int rank,
      int size,
      CommunicatorLineage lineage,
      Function<CommunicatorContext, CommunicatorDriver> driver) {
    this.backend = backend;
    this.core = new CommunicatorCore(backend.driver(), config, device, rank, size, lineage, driver);
    this.children = new ChildCommunicators(backend, core);
    core.owner(this);
  }

  /** {@return the backend that created this communicator} */
  public Backend backend() {
    return backend;
  }

  /** {@return the configuration of this communicator} */
  public CommunicatorConfig config() {
    return core.config();
  }

  /**
   * {@return the timeout of {@link #config}, or else that of the backend: 30 seconds on the
   * reference backend, 10 minutes on NCCL}
   */
  public Duration timeout() {
    return core.timeout();
  }

  /** {@return the device that this rank uses} C: {@code ncclCommCuDevice}. */
  public int device() {
    return core.device();
  }

  /**
   * {@return this rank, from 0 to {@code size() - 1}} C: {@code ncclCommUserRank}.
   *
   * @throws IllegalStateException if the split that creates this communicator failed, or its group
   *     has not ended
   */
  public int rank() {
    core.checkConnectedOnce();
    return core.rank();
  }

  /**
   * {@return the number of ranks} C: {@code ncclCommCount}.
   *
   * @throws IllegalStateException if the split that creates this communicator failed, or its group
   *     has not ended
   */
  public int size() {
    core.checkConnectedOnce();
    return core.size();
  }

  /**
   * {@return a new stream on this rank's device, of normal priority; the caller closes it} C:
   * {@code cudaStreamCreateWithPriority}, non-blocking.
   *
   * @throws IllegalStateException if the backend is closed
   * @throws CudaException if the CUDA runtime reports an error
   */
  public Stream newStream() {
    return backend.newStream(device());
  }

  /**
   * {@return a new stream on this rank's device; the caller closes it} C: {@code
   * cudaStreamCreateWithPriority}, non-blocking, with {@code cudaDeviceGetStreamPriorityRange}.
   *
   * @param priority the priority of the stream's work on the device
   * @throws IllegalStateException if the backend is closed
   * @throws CudaException if the CUDA runtime reports an error
   */
  public Stream newStream(Stream.Priority priority) {
    return backend.newStream(device(), priority);
  }

  /**
   * {@return a new event of this rank's device; the caller closes it} C: {@code
   * cudaEventCreateWithFlags}.
   *
   * @throws IllegalStateException if the backend is closed
   * @throws CudaException if the CUDA runtime reports an error
   */
  public Event newEvent() {
    return backend.newEvent(device());
  }

  /**
   * Allocates memory of this rank's device. Its contents are undefined. C: {@code cudaMalloc}.
   *
   * @param type the type of the elements
   * @param count the number of elements; 0 or more
   * @return the buffer, which owns its memory; the caller closes it
   * @throws IllegalArgumentException if the count is out of range
   * @throws IllegalStateException if the backend is closed
   * @throws CudaException if there is not enough memory on the device
   */
  public Buffer newBuffer(DataType type, long count) {
    return backend.newBuffer(device(), type, count);
  }

  /**
   * Allocates page-locked host memory, as {@link Backend#newPinnedBuffer} does: for copies that
   * overlap other work, and for data that the host reads and writes in place. C: {@code
   * cudaHostAlloc}.
   *
   * @param type the type of the elements
   * @param count the number of elements; 0 or more
   * @return the buffer, which owns its memory; the caller closes it
   * @throws IllegalArgumentException if the count is out of range
   * @throws IllegalStateException if the backend is closed, or this thread is capturing a graph
   * @throws CudaException if there is not enough memory
   */
  public Buffer newPinnedBuffer(DataType type, long count) {
    return backend.newPinnedBuffer(type, count);
  }

  /**
   * Reduces the data of all ranks and writes the result on every rank. Only enqueues the operation;
   * a wait for the stream throws its failures. C: {@code ncclAllReduce}.
   *
   * @param send this rank's data, {@code count} elements: the same number on every rank
   * @param recv the destination, {@code count} elements of the same type; in-place if it is the
   *     same memory as {@code send}
   * @param op the operator that combines the elements
   * @param stream the stream that orders the operation; a stream of this rank's device
   * @throws IllegalArgumentException if the buffers differ in type or count, overlap in part, or
   *     cannot be used on this device, or the operator does not suit the type
   * @throws IllegalStateException if the communicator, a buffer or the stream is not open, or
   *     another thread is using the communicator
   * @throws NcclException if the library refuses the operation, or the call waits for a peer longer
   *     than {@link #timeout}
   */
  public void allReduce(Buffer send, Buffer recv, ReduceOp op, Stream stream) {
    core.checkConnected();
    core.checkBuffer(send, "send");
    core.checkBuffer(recv, "recv");
    checkSameCount(send, recv);
    checkOperator(op, send.type());
    if (send != recv) {
      checkTypes(send, recv);
      checkOverlap(send, recv, 0, "the same memory");
    }
    submit(Operation.ALL_REDUCE, send, recv, send.count(), op, CommunicatorDriver.NO_PEER, stream);
  }

  /**
   * Copies the root's data to every rank. C: {@code ncclBroadcast}.
   *
   * @param send the root's data, {@code count} elements; ignored on other ranks, where it may be
   *     null
   * @param recv the destination, {@code count} elements; in-place if it is the same memory as
   *     {@code send}
   * @param root the rank that provides the data
   * @param stream the stream that orders the operation; a stream of this rank's device
   */
  public void broadcast(@Nullable Buffer send, Buffer recv, int root, Stream stream) {
    core.checkConnected();
    Arguments.inRange(root, "root", 0, core.size() - 1);
    core.checkBuffer(recv, "recv");
    if (send != null || core.rank() == root) {
      Objects.requireNonNull(send, "send");
      core.checkBuffer(send, "send");
      checkTypes(send, recv);
      checkSameCount(send, recv);
      checkOverlap(send, recv, 0, "the same memory");
    }
    submit(Operation.BROADCAST, send, recv, recv.count(), null, root, stream);
  }

  /**
   * Copies the root's data to every rank, in place. C: {@code ncclBroadcast} (and the older {@code
   * ncclBcast}).
   *
   * @param buffer the data on the root, the destination on the other ranks; {@code count} elements
   * @param root the rank that provides the data
   * @param stream the stream that orders the operation; a stream of this rank's device
   */
  public void broadcast(Buffer buffer, int root, Stream stream) {
    core.checkConnected();
    Arguments.inRange(root, "root", 0, core.size() - 1);
    core.checkBuffer(buffer, "buffer");
    submit(Operation.BROADCAST, buffer, buffer, buffer.count(), null, root, stream);
  }

  /**
   * Reduces the data of all ranks and writes the result on the root. C: {@code ncclReduce}.
   *
   * @param send this rank's data, {@code count} elements
   * @param recv the destination on the root, {@code count} elements; in-place if it is the same
   *     memory as {@code send}. Ignored on other ranks, where it may be null
   * @param op the operator that combines the elements
   * @param root the rank that receives the result
   * @param stream the stream that orders the operation; a stream of this rank's device
   */
  public void reduce(Buffer send, @Nullable Buffer recv, ReduceOp op, int root, Stream stream) {
    core.checkConnected();
    Arguments.inRange(root, "root", 0, core.size() - 1);
    core.checkBuffer(send, "send");
    checkOperator(op, send.type());
    if (recv != null || core.rank() == root) {
      Objects.requireNonNull(recv, "recv");
      core.checkBuffer(recv, "recv");
      checkTypes(send, recv);
      checkSameCount(send, recv);
      checkOverlap(send, recv, 0, "the same memory");
    }
    submit(Operation.REDUCE, send, recv, send.count(), op, root, stream);
  }

  /**
   * Takes part in a reduce on a rank that is not the root, as {@link #reduce(Buffer, Buffer,
   * ReduceOp, int, Stream)} does without a destination. C: {@code ncclReduce}.
   *
   * @param send this rank's data, {@code count} elements
   * @param op the operator that combines the elements
   * @param root the rank that receives the result; another rank than this one
   * @param stream the stream that orders the operation; a stream of this rank's device
   * @throws IllegalArgumentException if this rank is the root
   */
  public void reduce(Buffer send, ReduceOp op, int root, Stream stream) {
    checkNotRoot(root, "recv");
    reduce(send, null, op, root, stream);
  }

  /**
   * Gathers every rank's data on every rank, in rank order. C: {@code ncclAllGather}.
   *
   * @param send this rank's data, {@code count} elements
   * @param recv the destination of all data, {@code size() * count} elements; in-place if {@code
   *     send} is its slice at {@code rank() * count}
   * @param stream the stream that orders the operation; a stream of this rank's device
   */
  public void allGather(Buffer send, Buffer recv, Stream stream) {
    core.checkConnected();
    core.checkBuffer(send, "send");
    core.checkBuffer(recv, "recv");
    checkTypes(send, recv);
    checkWhole(recv, "recv", send, "send");
    checkOverlap(send, recv, core.rank() * send.byteSize(), "send == recv + rank * count");
    submit(
        Operation.ALL_GATHER, send, recv, send.count(), null, CommunicatorDriver.NO_PEER, stream);
  }

  /**
   * Gathers every rank's data on every rank, packed in rank order, where the ranks have different
   * counts. C: {@code ncclBroadcast} of every rank's data, in one group.
   *
   * @param send this rank's data, {@code counts[rank()]} elements
   * @param recv the destination of all data, as many elements as {@code counts} in sum; in-place if
   *     {@code send} is its slice after the data of the lower ranks
   * @param counts the number of elements of each rank, the same on every rank; each 0 or more
   * @param stream the stream that orders the operation; a stream of this rank's device
   */
  public void allGather(Buffer send, Buffer recv, long[] counts, Stream stream) {
    core.checkConnected();
    core.checkBuffer(send, "send");
    core.checkBuffer(recv, "recv");
    checkTypes(send, recv);
    long[] offsets = offsets(counts, "counts", recv, "recv");
    checkOwnCount(send, "send", counts);
    checkOverlap(
        send,
        recv,
        offsets[core.rank()] * recv.type().bytes(),
        "send == recv + the counts of the lower ranks");
    Group.run(
        () -> {
          for (int root = 0; root < counts.length; root++) {
            broadcast(
                root == core.rank() ? send : null,
                recv.slice(offsets[root], counts[root]),
                root,
                stream);
          }
        });
  }

  /**
   * Reduces the data of all ranks and writes on each rank its own slice of the result. C: {@code
   * ncclReduceScatter}.
   *
   * @param send this rank's data, {@code size() * count} elements
   * @param recv the destination of slice {@code rank()} of the result, {@code count} elements;
   *     in-place if it is the slice of {@code send} at {@code rank() * count}
   * @param op the operator that combines the elements
   * @param stream the stream that orders the operation; a stream of this rank's device
   */
  public void reduceScatter(Buffer send, Buffer recv, ReduceOp op, Stream stream) {
    core.checkConnected();
    core.checkBuffer(send, "send");
    core.checkBuffer(recv, "recv");
    checkOperator(op, send.type());
    checkTypes(send, recv);
    checkWhole(send, "send", recv, "recv");
    checkOverlap(recv, send, core.rank() * recv.byteSize(), "recv == send + rank * count");
    submit(
        Operation.REDUCE_SCATTER, send, recv, recv.count(), op, CommunicatorDriver.NO_PEER, stream);
  }

  /**
   * Reduces the data of all ranks and writes on each rank its own part of the result, where the
   * ranks have different counts; the parts are packed in rank order. C: {@code ncclReduce} of every
   * rank's part, in one group.
   *
   * @param send this rank's data, as many elements as {@code counts} in sum
   * @param recv the destination of this rank's part of the result, {@code counts[rank()]} elements;
   *     in-place if it is the slice of {@code send} after the parts of the lower ranks
   * @param counts the number of elements of each rank, the same on every rank; each 0 or more
   * @param op the operator that combines the elements
   * @param stream the stream that orders the operation; a stream of this rank's device
   */
  public void reduceScatter(Buffer send, Buffer recv, long[] counts, ReduceOp op, Stream stream) {
    core.checkConnected();
    core.checkBuffer(send, "send");
    core.checkBuffer(recv, "recv");
    checkOperator(op, send.type());
    checkTypes(send, recv);
    long[] offsets = offsets(counts, "counts", send, "send");
    checkOwnCount(recv, "recv", counts);
    checkOverlap(
        recv,
        send,
        offsets[core.rank()] * send.type().bytes(),
        "recv == send + the counts of the lower ranks");
    Group.run(
        () -> {
          for (int root = 0; root < counts.length; root++) {
            reduce(
                send.slice(offsets[root], counts[root]),
                root == core.rank() ? recv : null,
                op,
                root,
                stream);
          }
        });
  }

  /**
   * Sends slice r of this rank's data to rank r, and receives the data from rank r into slice r.
   * There is no in-place form. C: {@code ncclAlltoAll}, from NCCL 2.28 on; with an older library
   * grouped sends and receives.
   *
   * @param send this rank's data, {@code size() * count} elements
   * @param recv the destination of all ranks' data, {@code size() * count} elements
   * @param stream the stream that orders the operation; a stream of this rank's device
   */
  public void allToAll(Buffer send, Buffer recv, Stream stream) {
    core.checkConnected();
    core.checkBuffer(send, "send");
    core.checkBuffer(recv, "recv");
    checkTypes(send, recv);
    checkSameCount(send, recv);
    if (send.count() % core.size() != 0) {
      throw new IllegalArgumentException(
          "send has count "
              + send.count()
              + "; it must be a multiple of the communicator's size, "
              + core.size());
    }
    checkSeparate(send, recv);
    submit(
        Operation.ALL_TO_ALL,
        send,
        recv,
        send.count() / core.size(),
        null,
        CommunicatorDriver.NO_PEER,
        stream);
  }

  /**
   * Sends {@code sendCounts[r]} elements to each rank r and receives {@code recvCounts[r]} elements
   * from it. Both buffers are packed in rank order. There is no in-place form. C: {@code ncclSend}
   * and {@code ncclRecv}, in one group.
   *
   * @param send this rank's data, as many elements as {@code sendCounts} in sum
   * @param sendCounts the number of elements for each rank; each 0 or more
   * @param recv the destination of all ranks' data, as many elements as {@code recvCounts} in sum
   * @param recvCounts the number of elements from each rank; {@code recvCounts[r]} is what rank r
   *     has as {@code sendCounts[rank()]}
   * @param stream the stream that orders the operation; a stream of this rank's device
   */
  public void allToAll(
      Buffer send, long[] sendCounts, Buffer recv, long[] recvCounts, Stream stream) {
    core.checkConnected();
    core.checkBuffer(send, "send");
    core.checkBuffer(recv, "recv");
    core.checkStream(stream);
    checkTypes(send, recv);
    long[] sendOffsets = offsets(sendCounts, "sendCounts", send, "send");
    long[] recvOffsets = offsets(recvCounts, "recvCounts", recv, "recv");
    int rank = core.rank();
    if (sendCounts[rank] != recvCounts[rank]) {
      throw new IllegalArgumentException(
          "recvCounts[%d] is %d; for this rank itself it must be that of sendCounts, %d"
              .formatted(rank, recvCounts[rank], sendCounts[rank]));
    }
    checkSeparate(send, recv);
    Group.run(
        () -> {
          for (int peer = 0; peer < core.size(); peer++) {
            if (sendCounts[peer] > 0) {
              send(send.slice(sendOffsets[peer], sendCounts[peer]), peer, stream);
            }
            if (recvCounts[peer] > 0) {
              recv(recv.slice(recvOffsets[peer], recvCounts[peer]), peer, stream);
            }
          }
        });
  }

  /**
   * Gathers every rank's data on the root, in rank order. C: {@code ncclGather}, from NCCL 2.28 on;
   * with an older library grouped sends and receives.
   *
   * @param send this rank's data, {@code count} elements
   * @param recv the destination of all data on the root, {@code size() * count} elements; in-place
   *     if the root's {@code send} is its slice at {@code root * count}. Ignored on other ranks,
   *     where it may be null
   * @param root the rank that receives the data
   * @param stream the stream that orders the operation; a stream of this rank's device
   */
  public void gather(Buffer send, @Nullable Buffer recv, int root, Stream stream) {
    core.checkConnected();
    Arguments.inRange(root, "root", 0, core.size() - 1);
    core.checkBuffer(send, "send");
    if (core.rank() == root) {
      Objects.requireNonNull(recv, "recv");
      core.checkBuffer(recv, "recv");
      checkTypes(send, recv);
      checkWhole(recv, "recv", send, "send");
      checkOverlap(send, recv, root * send.byteSize(), "send == recv + root * count");
    }
    submit(
        Operation.GATHER,
        send,
        core.rank() == root ? recv : null,
        send.count(),
        null,
        root,
        stream);
  }

  /**
   * Sends this rank's data to the root of a gather, as {@link #gather(Buffer, Buffer, int, Stream)}
   * does on a rank that is not the root. C: {@code ncclGather}.
   *
   * @param send this rank's data, {@code count} elements
   * @param root the rank that receives the data; another rank than this one
   * @param stream the stream that orders the operation; a stream of this rank's device
   * @throws IllegalArgumentException if this rank is the root
   */
  public void gather(Buffer send, int root, Stream stream) {
    checkNotRoot(root, "recv");
    gather(send, null, root, stream);
  }

  /**
   * Sends each rank its own slice of the root's data. C: {@code ncclScatter}, from NCCL 2.28 on;
   * with an older library grouped sends and receives.
   *
   * @param send the root's data, {@code size() * count} elements; ignored on other ranks, where it
   *     may be null
   * @param recv the destination of this rank's slice, {@code count} elements; in-place if the
   *     root's {@code recv} is the slice of {@code send} at {@code root * count}
   * @param root the rank that provides the data
   * @param stream the stream that orders the operation; a stream of this rank's device
   */
  public void scatter(@Nullable Buffer send, Buffer recv, int root, Stream stream) {
    core.checkConnected();
    Arguments.inRange(root, "root", 0, core.size() - 1);
    core.checkBuffer(recv, "recv");
    if (core.rank() == root) {
      Objects.requireNonNull(send, "send");
      core.checkBuffer(send, "send");
      checkTypes(send, recv);
      checkWhole(send, "send", recv, "recv");
      checkOverlap(recv, send, root * recv.byteSize(), "recv == send + root * count");
    }
    submit(
        Operation.SCATTER,
        core.rank() == root ? send : null,
        recv,
        recv.count(),
        null,
        root,
        stream);
  }

  /**
   * Receives this rank's slice of a scatter, as {@link #scatter(Buffer, Buffer, int, Stream)} does
   * on a rank that is not the root. C: {@code ncclScatter}.
   *
   * @param recv the destination of this rank's slice, {@code count} elements
   * @param root the rank that provides the data; another rank than this one
   * @param stream the stream that orders the operation; a stream of this rank's device
   * @throws IllegalArgumentException if this rank is the root
   */
  public void scatter(Buffer recv, int root, Stream stream) {
    checkNotRoot(root, "send");
    scatter(null, recv, root, stream);
  }

  /**
   * Copies the root's bytes to every rank, and waits for them: for small control data, whose length
   * the other ranks do not know. Every rank calls it, in its own thread, outside a {@link Group}
   * and a {@link Graph}. It allocates memory of the device: ranks that share one must have
   * completed their operations. C: {@code ncclAllGather} of the lengths, then {@code
   * ncclBroadcast}.
   *
   * @param value the root's bytes, at most 64 MiB; ignored on other ranks, where it may be null
   * @param root the rank that provides the bytes
   * @param stream a stream of this rank's device, which orders the exchange
   * @return the root's bytes, in a new array
   * @throws IllegalArgumentException if the root is out of range or, on every rank, if there are
   *     too many bytes
   * @throws IllegalStateException if this communicator or the stream is not open, or in a group or
   *     a capture
   * @throws NcclException as {@link Stream#synchronize()} does
   */
  public byte[] broadcastBytes(byte @Nullable [] value, int root, Stream stream) {
    checkExchange("broadcastBytes", stream);
    Arguments.inRange(root, "root", 0, core.size() - 1);
    boolean atRoot = core.rank() == root;
    byte[] own = atRoot ? Objects.requireNonNull(value, "value") : new byte[0];
    long[] lengths = exchange(own.length, stream);
    byte[] bytes = Arrays.copyOf(own, checkBytes(lengths[root]));
    try (Buffer buffer = core.newBuffer(DataType.INT8, bytes.length)) {
      if (atRoot) {
        buffer.copyFromAsync(bytes, stream);
      }
      broadcast(buffer, root, stream);
      if (atRoot) {
        stream.synchronize();
      } else {
        buffer.copyTo(bytes, stream);
      }
    }
    return bytes;
  }

  /**
   * Gathers every rank's bytes on the root, and waits for them: for small control data, of another
   * length on each rank. Every rank calls it, in its own thread, outside a {@link Group} and a
   * {@link Graph}. It allocates memory of the device: ranks that share one must have completed
   * their operations. C: {@code ncclAllGather} of the lengths, then {@code ncclSend} and {@code
   * ncclRecv}.
   *
   * @param value this rank's bytes; those of all ranks have at most 64 MiB
   * @param root the rank that receives the bytes
   * @param stream a stream of this rank's device, which orders the exchange
   * @return on the root the bytes of each rank, in rank order, in new arrays; on other ranks an
   *     empty list
   * @throws IllegalArgumentException if the root is out of range or, on every rank, if there are
   *     too many bytes
   * @throws IllegalStateException if this communicator or the stream is not open, or in a group or
   *     a capture
   * @throws NcclException as {@link Stream#synchronize()} does
   */
  public List<byte[]> gatherBytes(byte[] value, int root, Stream stream) {
    checkExchange("gatherBytes", stream);
    Arguments.inRange(root, "root", 0, core.size() - 1);
    Objects.requireNonNull(value, "value");
    long[] lengths = exchange(value.length, stream);
    int total = checkBytes(LongStream.of(lengths).sum());
    boolean atRoot = core.rank() == root;
    long[] sendCounts = new long[core.size()];
    sendCounts[root] = value.length;
    byte[] all = new byte[atRoot ? total : 0];
    try (Buffer send = core.newBuffer(DataType.INT8, value.length);
        Buffer recv = core.newBuffer(DataType.INT8, all.length)) {
      send.copyFromAsync(value, stream);
      allToAll(send, sendCounts, recv, atRoot ? lengths : new long[core.size()], stream);
      recv.copyTo(all, stream);
    }
    List<byte[]> values = new ArrayList<>();
    int end = 0;
    for (int rank = 0; atRoot && rank < lengths.length; rank++) {
      int begin = end;
      end += (int) lengths[rank];
      values.add(Arrays.copyOfRange(all, begin, end));
    }
    return values;
  }

  /** Throws unless this thread can exchange values and wait for them now. */
  private void checkExchange(String call, Stream stream) {
    core.checkConnected();
    core.checkStream(stream);
    ThreadScope.checkNotCapturing(call);
    stream.checkCanWait(call);
    if (Group.running()) {
      throw new IllegalStateException(
          call + " waits for the other ranks; call it outside the group");
    }
  }

  /** Returns one number of each rank, in rank order, and waits for them. */
  private long[] exchange(long own, Stream stream) {
    long[] numbers = new long[core.size()];
    numbers[core.rank()] = own;
    try (Buffer buffer = core.newBuffer(DataType.INT64, numbers.length)) {
      buffer.copyFromAsync(numbers, stream);
      allGather(buffer.slice(core.rank(), 1), buffer, stream);
      buffer.copyTo(numbers, stream);
    }
    return numbers;
  }

  /** Returns the number of bytes that the ranks exchange, which is the same on every rank. */
  private static int checkBytes(long bytes) {
    if (bytes > MAX_BYTES) {
      throw new IllegalArgumentException(
          "the ranks pass %d bytes; at most %d can be exchanged as arrays, use buffers for more"
              .formatted(bytes, MAX_BYTES));
    }
    return (int) bytes;
  }

  /**
   * Enqueues a barrier: later work of the stream starts only when the streams of all ranks have
   * reached their barriers. Returns without waiting; {@link Stream#synchronize} after it makes the
   * host wait for all ranks. Every rank calls it. C: {@code ncclAllReduce} of one element.
   *
   * <p>The communicator owns the element. The first call allocates it, with the rules of {@link
   * #newBuffer} but also after the backend was closed; so call it once before a {@link Graph}
   * captures a barrier. A {@link Group} may contain one barrier of a communicator, which does not
   * wait for the group's other operations.
   *
   * @param stream the stream that orders the barrier; a stream of this rank's device
   * @throws IllegalStateException if this thread captures the communicator's first barrier
   */
  public void barrier(Stream stream) {
    core.checkConnected();
    core.checkStream(stream);
    Buffer element = core.barrierMemory();
    allReduce(element, element, ReduceOp.SUM, stream);
  }

  /**
   * Sends data to one peer, which receives it with {@link #recv}. A send may block the stream until
   * the peer receives; operations that must progress together belong in one {@link Group}. A send
   * may also complete before: that the stream has completed it means that the buffer may be reused,
   * not that the peer has the data. With the reference backend, a send to a rank of another process
   * completes once its data is in shared memory, which has room for four slices of {@code Layout}
   * (512 KiB by default), or in the kernel's buffers of a connection, which usually have room for
   * more. C: {@code ncclSend}.
   *
   * @param buffer the data, {@code count} elements
   * @param peer the rank that receives; a send to this rank itself needs a receive in the same
   *     group
   * @param stream the stream that orders the operation; a stream of this rank's device
   */
  public void send(Buffer buffer, int peer, Stream stream) {
    core.checkConnected();
    checkPeer(peer);
    core.checkBuffer(buffer, "buffer");
    submit(Operation.SEND, buffer, null, buffer.count(), null, peer, stream);
  }

  /**
   * Receives data from one peer, which sends the same type and count with {@link #send}. C: {@code
   * ncclRecv}.
   *
   * @param buffer the destination, {@code count} elements
   * @param peer the rank that sends
   * @param stream the stream that orders the operation; a stream of this rank's device
   */
  public void recv(Buffer buffer, int peer, Stream stream) {
    core.checkConnected();
    checkPeer(peer);
    core.checkBuffer(buffer, "buffer");
    submit(Operation.RECV, null, buffer, buffer.count(), null, peer, stream);
  }

  /**
   * Creates an operator that multiplies each rank's data by that rank's scalar and then sums. C:
   * {@code ncclRedOpCreatePreMulSum}, from NCCL 2.11 on.
   *
   * @param type the type of the data to reduce
   * @param scalar this rank's factor, a value that {@link DataType#set} accepts, and rounds to the
   *     type; it must not become 0. Java rounds a {@code long} beyond 2^53 before it passes it as a
   *     {@code double}; use {@link #newPreMulSum(Buffer)} for such factors
   * @return the operator; the caller closes it before the communicator
   * @throws IllegalArgumentException if the type cannot hold the factor
   */
  public ReduceOp.PreMulSum newPreMulSum(DataType type, double scalar) {
    Objects.requireNonNull(type, "type");
    core.checkConnected();
    type.checkHolds(scalar, "scalar");
    MemorySegment rounded = MemorySegment.ofArray(new long[1]);
    type.set(rounded, 0, scalar);
    if (type.get(rounded, 0) == 0 && scalar != 0) {
      throw new IllegalArgumentException(
          "scalar is " + scalar + "; " + type + " rounds it to 0, which would discard the data");
    }
    return new ReduceOp.PreMulSum(core, type, core.driver().createOperator(type, scalar), null);
  }

  /**
   * Creates an operator like {@link #newPreMulSum(DataType, double)}, whose scalar is read from
   * memory when a reduction runs. C: {@code ncclRedOpCreatePreMulSum} with {@code
   * ncclScalarDevice}.
   *
   * @param scalar one element, of the type that the operator will reduce; keep it open until the
   *     stream has completed the last reduction that uses the operator
   * @return the operator; the caller closes it before the communicator
   */
  public ReduceOp.PreMulSum newPreMulSum(Buffer scalar) {
    core.checkUsable(scalar, "scalar");
    if (scalar.count() != 1) {
      throw new IllegalArgumentException("scalar has count " + scalar.count() + "; it must be 1");
    }
    return new ReduceOp.PreMulSum(
        core, scalar.type(), core.driver().createOperator(scalar.memory()), scalar);
  }

  /**
   * Creates a communicator of all ranks that pass the same color. Every rank of this communicator
   * calls {@code split} or {@link #splitNoColor}. C: {@code ncclCommSplit}, from NCCL 2.18 on.
   *
   * @param color the new communicator to join; 0 or more
   * @param key orders the new ranks; equal keys keep the order of this communicator
   * @param childConfig the new communicator's configuration; its device, if set, must be this
   *     rank's device
   * @return the new communicator; the caller closes it; in a {@link Group} it is usable once the
   *     group has ended
   * @throws IllegalArgumentException if the color is negative, or {@code childConfig} has another
   *     device
   * @throws IllegalStateException if this communicator is not open, or this thread's group holds
   *     operations or another split of this communicator
   * @throws NcclTimeoutException if not all ranks called in time
   * @throws NcclException if the library reports an error
   * @throws java.util.concurrent.CancellationException if the waiting thread is interrupted; its
   *     interrupt status stays set
   */
  public Communicator split(int color, int key, CommunicatorConfig childConfig) {
    return children
        .split(color, childConfig, child -> core.driver().split(color, key, child))
        .connectedNowOrWithGroup(this);
  }

  /**
   * Creates a communicator as {@link #split(int, int, CommunicatorConfig)} does, with the
   * configuration of this one. Throws the same exceptions. C: {@code ncclCommSplit}, from NCCL 2.18
   * on.
   *
   * @param color the new communicator to join; 0 or more
   * @param key orders the new ranks; equal keys keep the order of this communicator
   * @return the new communicator; the caller closes it; in a {@link Group} it is usable once the
   *     group has ended
   */
  public Communicator split(int color, int key) {
    return split(color, key, config());
  }

  /**
   * Takes part in a split without joining a new communicator. C: {@code ncclCommSplit} with {@code
   * NCCL_SPLIT_NOCOLOR}.
   *
   * @throws IllegalStateException as {@link #split(int, int, CommunicatorConfig)} does
   * @throws NcclException as {@link #split(int, int, CommunicatorConfig)} does
   */
  public void splitNoColor() {
    children.splitNoColor().connectedNowOrWithGroup(this);
  }

  /**
   * Creates a communicator without some of this one's ranks; the remaining ranks keep their order.
   * All survivors call this method, with the same ranks and mode. The excluded ranks do not call it
   * and may have exited. To continue after losing ranks, use {@link Recovery}, which determines the
   * ranks to exclude. C: {@code ncclCommShrink}, from NCCL 2.27 on.
   *
   * <p>It waits for the other survivors until the timeout of {@code childConfig} expires. A rank
   * that detects a loss only by a timeout calls this method that much later, so give {@code
   * childConfig} a longer timeout.
   *
   * <p>On the reference backend, the call fails on every survivor if one of them exits or fails
   * before all have connected. The survivors then call it again on this communicator and exclude
   * those ranks too. If survivors exclude different ranks in an {@link ShrinkMode#ABORT_FIRST}
   * shrink, nobody gets a communicator, and each gets an {@link NcclInvalidUsageException} that
   * names two of the sets; a rank that calls after others have shrunk without it gets one that says
   * so. To detect this, such a shrink waits up to two seconds for excluded ranks that have not left
   * and whose processes answer, and up to a quarter of the timeout for those that do not. NCCL does
   * not compare the sets: ranks that differ wait until the timeout expires.
   *
   * @param excludedRanks the ranks to exclude: at least one, and not this one; the set is copied
   * @param mode whether this communicator's operations are finished or aborted first
   * @param childConfig the new communicator's configuration; its device, if set, must be this
   *     rank's device
   * @return the new communicator; the caller closes it; in a {@link Group} it is usable once the
   *     group has ended
   * @throws IllegalArgumentException if {@code excludedRanks} is empty, contains this rank or a
   *     rank that is out of range, or {@code childConfig} has another device
   * @throws IllegalStateException if this communicator is not open, or this thread's group holds
   *     operations or another child of this communicator
   * @throws NcclTimeoutException if operations did not finish, or not all survivors called, within
   *     the timeout
   * @throws NcclException if the library reports an error
   * @throws UnsupportedNcclVersionException if the library is too old
   * @throws java.util.concurrent.CancellationException if the waiting thread is interrupted; its
   *     interrupt status stays set
   */
  public Communicator shrink(
      Set<Integer> excludedRanks, ShrinkMode mode, CommunicatorConfig childConfig) {
    return children
        .shrink(
            excludedRanks,
            mode,
            childConfig,
            (excluded, child) -> core.driver().shrink(excluded, mode, child))
        .connectedNowOrWithGroup(this);
  }

  /**
   * Creates a communicator as {@link #shrink(Set, ShrinkMode, CommunicatorConfig)} does, with the
   * configuration of this one.
   *
   * @param excludedRanks the ranks to exclude: at least one, and not this one; the set is copied
   * @param mode whether this communicator's operations are finished or aborted first
   * @return the new communicator; the caller closes it; in a {@link Group} it is usable once the
   *     group has ended
   */
  public Communicator shrink(Set<Integer> excludedRanks, ShrinkMode mode) {
    return shrink(excludedRanks, mode, config());
  }

  /**
   * {@return the rank that each rank of this communicator has in its parent, in rank order; at
   * least one, immutable} The parent is the communicator that was split or shrunk, also by {@link
   * Recovery}. Every rank of this communicator calls it, in its own thread, outside a {@link Group}
   * and a {@link Graph}; it exchanges the ranks and waits for them as {@link Stream#synchronize()}
   * does, with what that throws. C: {@code ncclAllGather}.
   *
   * @param stream a stream of this rank's device, which orders the exchange
   * @throws IllegalStateException if this communicator was created by neither a split nor a shrink,
   *     if it or the stream is not open, or in a group or a capture
   */
  public List<Integer> parentRanks(Stream stream) {
    checkExchange("parentRanks", stream);
    if (core.parentRank() < 0) {
      throw new IllegalStateException(
          "neither a split nor a shrink created this communicator, so it has no parent: " + this);
    }
    return LongStream.of(exchange(core.parentRank(), stream)).mapToObj(Math::toIntExact).toList();
  }

  /** Returns the ranks that are lost; empty if the library does not report them. */
  Optional<Set<Integer>> lostRanks() {
    core.checkCanCreateChild();
    return core.driver().lostRanks();
  }

  /** Returns the ranks that were lost when operations failed, as far as the library told. */
  Set<Integer> ranksLostBefore() {
    return core.failures().lostRanks();
  }

  /** Returns what this rank's operation waits for; empty if that is not known. */
  Optional<Awaited> awaited() {
    return core.awaited();
  }

  /**
   * Creates a communicator without some of this one's ranks, whose operations are aborted; without
   * any if all have called this.
   */
  Communicator shrinkAfterFailure(SortedSet<Integer> excludedRanks) {
    return children
        .shrinkAfterFailure(
            excludedRanks,
            config(),
            child -> core.driver().shrink(excludedRanks, ShrinkMode.ABORT_FIRST, child))
        .connectedNowOrWithGroup(this);
  }

  /**
   * Creates the id that new ranks need to join this communicator with {@link Backend#join}. One
   * rank of this communicator calls this method, sends the id to the new ranks (see {@code
   * io.nccl4j.rendezvous}), and passes it to its own {@link #grow(int, UniqueId,
   * CommunicatorConfig)}. An id can be used for one grow, whether that succeeds or not, and only
   * one id can exist at a time. The method first waits until this rank's streams have completed
   * this communicator's operations; if it is interrupted, it can be called again. C: {@code
   * ncclCommGetUniqueId}, from NCCL 2.29.2 on.
   *
   * @return the id
   * @throws IllegalStateException if this communicator is not open for operations, or an earlier id
   *     has not been used yet
   * @throws NcclTimeoutException if operations did not finish within the timeout
   * @throws NcclException if the library reports an error
   * @throws UnsupportedNcclVersionException if the library is too old
   */
  public UniqueId newGrowId() {
    return children.newGrowId();
  }

  /**
   * Creates a larger communicator, on the rank that created the id. The ranks of this communicator
   * keep their numbers. All other ranks of this communicator call {@link #grow(int,
   * CommunicatorConfig)}, the new ranks call {@link Backend#join}. The method first waits until
   * this rank's streams have completed this communicator's operations; this communicator remains
   * usable. C: {@code ncclCommGrow}, from NCCL 2.29.2 on.
   *
   * @param newSize the number of ranks of the new communicator, more than {@link #size}
   * @param id the last id that {@link #newGrowId} of this communicator returned
   * @param childConfig the new communicator's configuration; its device, if set, must be this
   *     rank's device
   * @return the new communicator; the caller closes it; in a {@link Group} it is usable once the
   *     group has ended
   * @throws IllegalArgumentException if {@code newSize} is too small, {@code id} is not the last id
   *     of {@link #newGrowId}, or {@code childConfig} has another device
   * @throws IllegalStateException if this communicator is not open for operations, or this thread's
   *     group holds operations or another child of this communicator
   * @throws NcclTimeoutException if operations did not finish, or not all ranks joined, within the
   *     timeout
   * @throws NcclException if the library reports an error
   * @throws UnsupportedNcclVersionException if the library is too old
   * @throws java.util.concurrent.CancellationException if the waiting thread is interrupted; its
   *     interrupt status stays set
   */
  public Communicator grow(int newSize, UniqueId id, CommunicatorConfig childConfig) {
    return children
        .growWithId(newSize, id, childConfig, child -> core.driver().grow(newSize, id, child))
        .connectedNowOrWithGroup(this);
  }

  /**
   * Creates a larger communicator as {@link #grow(int, UniqueId, CommunicatorConfig)} does, on the
   * ranks that did not create the id. Throws the same exceptions. C: {@code ncclCommGrow}, from
   * NCCL 2.29.2 on.
   *
   * @param newSize the number of ranks of the new communicator, more than {@link #size}
   * @param childConfig the new communicator's configuration; its device, if set, must be this
   *     rank's device
   * @return the new communicator; the caller closes it; in a {@link Group} it is usable once the
   *     group has ended
   */
  public Communicator grow(int newSize, CommunicatorConfig childConfig) {
    return children
        .grow(newSize, childConfig, child -> core.driver().grow(newSize, null, child))
        .connectedNowOrWithGroup(this);
  }

  /**
   * Creates a larger communicator as {@link #grow(int, UniqueId, CommunicatorConfig)} does, with
   * the configuration of this one.
   *
   * @param newSize the number of ranks, old and new
   * @param id the id that {@link #newGrowId} returned on this rank
   * @return the new communicator; the caller closes it; in a {@link Group} it is usable once the
   *     group has ended
   */
  public Communicator grow(int newSize, UniqueId id) {
    return grow(newSize, id, config());
  }

  /**
   * Creates a larger communicator as {@link #grow(int, CommunicatorConfig)} does, with the
   * configuration of this one.
   *
   * @param newSize the number of ranks, old and new
   * @return the new communicator; the caller closes it; in a {@link Group} it is usable once the
   *     group has ended
   */
  public Communicator grow(int newSize) {
    return grow(newSize, config());
  }

  /**
   * {@return the failure detected since the communicator was created, such as a network, peer or
   * kernel failure, or empty} After a failure, {@link #abort} the communicator of every rank. C:
   * {@code ncclCommGetAsyncError}.
   *
   * @throws IllegalStateException if the communicator is not connected yet, aborted or closed
   */
  public Optional<NcclException> asyncError() {
    if (!isOpen()) {
      core.checkConnected();
    }
    return core.failure();
  }

  /**
   * Ends this communicator at once, together with all its operations that are enqueued or running
   * in this process and every {@link Graph} that contains one. The streams stay usable. May be
   * called from any thread, also while another thread waits in this communicator. Idempotent. To
   * abort several communicators of this process, use {@link #abortAll}. C: {@code ncclCommAbort}.
   *
   * @throws CudaException if a graph could not be destroyed; the communicator is aborted
   *     nevertheless
   */
  public void abort() {
    core.abort();
  }

  /**
   * Aborts several communicators concurrently, each as {@link #abort} does, and waits for all of
   * them. NCCL frees memory when it aborts a communicator, and CUDA may then wait for the kernels
   * of another. If that one hangs too, and is aborted later by the same thread, the first abort
   * lasts for its whole timeout. C: {@code ncclCommAbort}.
   *
   * @param communicators the communicators, of any ranks and devices of this process; may be empty
   * @throws CudaException if a graph could not be destroyed; all communicators are aborted
   *     nevertheless. Failures of others are suppressed in it
   */
  public static void abortAll(List<Communicator> communicators) {
    Arguments.noNulls(communicators, "communicators");
    CommunicatorCore.abortAll(communicators.stream().map(Communicator::core).toList());
  }

  /**
   * Waits for enqueued operations, ends the open {@link Graph}s that contain operations of this
   * communicator, notifies the peers, and frees the communicator's resources. Every rank closes its
   * communicator. Each wait, for a stream with its operations and then for the peers, is limited by
   * the configured timeout; when it expires, the communicator is aborted. After a failure, the
   * communicator is aborted and the failure is thrown. The waits are not interruptible; the
   * interrupt status is kept. A communicator that is not connected yet is aborted. Idempotent; has
   * no effect after {@link #abort}. C: {@code ncclCommFinalize}, {@code ncclCommDestroy}.
   *
   * <p>NCCL frees memory, for which CUDA may wait for all kernels of the device: where ranks share
   * a device, no other rank may be waiting for this one in an operation.
   *
   * <p>The reference backend also compares the collectives that this rank has called with those of
   * the other ranks. If they differ, at least the last rank to close throws an {@link
   * NcclInvalidUsageException} that names the collective.
   *
   * @throws IllegalStateException if this thread is capturing a graph, or other code captures a
   *     stream that has operations of this communicator; the communicator is not closed then
   * @throws NcclTimeoutException if the timeout expires; the communicator is then aborted
   * @throws NcclException if an operation or the library failed; the communicator is then aborted
   * @throws CudaException if work failed on a stream that has operations of this communicator
   */
  @Override
  public void close() {
    core.close();
  }

  /** {@return whether the communicator is connected and neither closed nor aborted} */
  public boolean isOpen() {
    return core.isOpen();
  }

  /**
   * {@return whether this communicator's operations were ended before they completed: by {@link
   * #abort}, by a {@link ShrinkMode#ABORT_FIRST shrink}, because connecting failed, or, on NCCL,
   * because the communicator was revoked or closing it failed}
   */
  public boolean isAborted() {
    return core.isAborted();
  }

  private void submit(
      Operation operation,
      @Nullable Buffer send,
      @Nullable Buffer recv,
      long count,
      @Nullable ReduceOp op,
      int peer,
      Stream stream) {
    CallLauncher.submit(Call.of(operation, core, send, recv, count, op, peer, stream));
  }

  private void checkPeer(int peer) {
    Arguments.inRange(peer, "peer", 0, core.size() - 1);
    if (peer == core.rank() && Group.current() == null) {
      throw new IllegalArgumentException(
          "peer is " + peer + ", this rank itself; that needs a send and a receive in one group");
    }
  }

  /** Checks a call without the buffer that only the root needs. */
  private void checkNotRoot(int root, String missing) {
    if (core.rank() == root) {
      throw new IllegalArgumentException(
          "root is this rank, " + root + "; the root must also pass " + missing);
    }
  }

  private void checkOperator(ReduceOp op, DataType type) {
    Objects.requireNonNull(op, "op");
    op.check(core, type);
  }

  private static void checkTypes(Buffer send, Buffer recv) {
    Buffer.checkSameType(recv, "recv", send, "send");
  }

  private static void checkSameCount(Buffer send, Buffer recv) {
    if (send.count() != recv.count()) {
      throw new IllegalArgumentException(
          "recv has count " + recv.count() + "; it must be that of send, " + send.count());
    }
  }

  private void checkWhole(Buffer whole, String wholeName, Buffer part, String partName) {
    int size = core.size();
    if (whole.count() / size != part.count() || whole.count() % size != 0) {
      throw new IllegalArgumentException(
          "%s has count %d; it must be size * %s's count, %d * %d"
              .formatted(wholeName, whole.count(), partName, size, part.count()));
    }
  }

  /**
   * Returns the index of each rank's first element in a buffer that has the data of all ranks.
   * Throws unless the counts add up to the buffer's.
   */
  private long[] offsets(long[] counts, String argument, Buffer whole, String wholeName) {
    Objects.requireNonNull(counts, argument);
    long[] offsets = new long[counts.length];
    long end = 0;
    boolean valid = counts.length == core.size();
    for (int rank = 0; rank < counts.length; rank++) {
      valid &= counts[rank] >= 0 && counts[rank] <= whole.count() - end;
      offsets[rank] = end;
      end += counts[rank];
    }
    if (!valid || end != whole.count()) {
      throw new IllegalArgumentException(
          "%s is %s; it must have a count of 0 or more for each of %d ranks, in sum %s's count, %d"
              .formatted(argument, Arrays.toString(counts), core.size(), wholeName, whole.count()));
    }
    return offsets;
  }

  private void checkOwnCount(Buffer buffer, String argument, long[] counts) {
    if (buffer.count() != counts[core.rank()]) {
      throw new IllegalArgumentException(
          "%s has count %d; it must be counts[%d], %d"
              .formatted(argument, buffer.count(), core.rank(), counts[core.rank()]));
    }
  }

  private static void checkSeparate(Buffer send, Buffer recv) {
    if (send.overlaps(send.byteSize(), recv, recv.byteSize())) {
      throw new IllegalArgumentException("send and recv overlap; allToAll has no in-place form");
    }
  }

  private static void checkOverlap(Buffer part, Buffer whole, long inPlaceBytes, String inPlace) {
    if (part.overlaps(part.byteSize(), whole, whole.byteSize())
        && part.bytesAfter(whole) != inPlaceBytes) {
      throw new IllegalArgumentException(
          "send and recv overlap; they must be separate, or in-place: " + inPlace);
    }
  }

  /** Returns this communicator, connected now or when this thread's group ends. */
  Communicator connectedNowOrWithGroup(@Nullable Communicator parent) {
    Group group = Group.current();
    if (group != null) {
      group.add(core, parent == null ? null : parent.core);
    } else {
      core.connect();
    }
    return this;
  }

  /**
   * Connects in a new thread.
   *
   * @return a stage that only this operation completes; it fails with the exception that {@code
   *     connect} throws
   * @throws IllegalStateException if this thread has a group open
   */
  CompletionStage<Communicator> connectInBackground() {
    if (Group.running()) {
      throw new IllegalStateException(
          "a communicator that connects in the background belongs to no group; end the group first");
    }
    return Background.start(
            "nccl4j-connect",
            () -> {
              core.connect();
              return null;
            })
        .thenApply(nothing -> this);
  }

  CommunicatorCore core() {
    return core;
  }

  ChildCommunicators children() {
    return children;
  }

  @Override
  public String toString() {
    return core.toString();
  }
}
