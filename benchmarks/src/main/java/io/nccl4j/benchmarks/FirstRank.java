package io.nccl4j.benchmarks;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Stream;
import io.nccl4j.cuda.CudaStream;
import java.util.List;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

/**
 * The state of rank 0 of two, with the arguments of an all-reduce; the other rank is idle. All call
 * paths pass the same addresses. All except nccl4j's public API pass a made-up communicator
 * pointer, which the stand-in's no-op library never reads.
 */
@State(Scope.Thread)
public abstract class FirstRank {
  /** The number of all-reduces in a group, as when a framework flushes its gradient buckets. */
  static final int GROUP = 64;

  /** Elements of an all-reduce; a no-op library takes the same time for any number. */
  static final long COUNT = 1024;

  /** The codes of {@code ncclFloat} and {@code ncclSum}. */
  static final int FLOAT = 7;

  static final int SUM = 0;

  Backend backend;
  Communicator communicator;
  private Communicator other;
  Stream stream;
  Buffer send;
  Buffer recv;
  // Slices of the same memory: operations of one group must not write shared memory.
  final Buffer[] sends = new Buffer[GROUP];
  final Buffer[] recvs = new Buffer[GROUP];

  /** Creates the communicators, the stream and the buffers. */
  @Setup
  public void open() {
    backend = Backend.nccl();
    List<Communicator> ranks = backend.newCommunicators(0, 1);
    communicator = ranks.get(0);
    other = ranks.get(1);
    stream = communicator.newStream();
    send = communicator.newBuffer(DataType.FLOAT32, COUNT);
    recv = communicator.newBuffer(DataType.FLOAT32, COUNT);
    long part = COUNT / GROUP;
    for (int i = 0; i < GROUP; i++) {
      sends[i] = send.slice(i * part, part);
      recvs[i] = recv.slice(i * part, part);
    }
  }

  /** Closes all of them. */
  @TearDown
  public void close() throws InterruptedException {
    recv.close();
    send.close();
    stream.close();
    Thread peer = Thread.ofPlatform().start(other::close);
    communicator.close();
    peer.join();
    backend.close();
  }

  final long streamAddress() {
    return CudaStream.of(stream).address();
  }

  final long sendAddress() {
    return send.address();
  }

  final long recvAddress() {
    return recv.address();
  }

  /** Throws unless the result is success, which the no-op library always returns. */
  static int checked(int result) {
    if (result != 0) {
      throw new IllegalStateException("the library returned " + result);
    }
    return result;
  }
}
