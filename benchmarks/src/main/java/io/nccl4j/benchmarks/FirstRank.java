package io.nccl4j.benchmarks;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Stream;
import io.nccl4j.cuda.CudaStream;
import java.util.List;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

/**
 * The first of two ranks, with what an all-reduce needs; the other one is idle. The peers take its
 * addresses, so that every way to call hands over the same arguments; all but the contract's make
 * up a communicator pointer, which a library that does nothing never reads.
 */
@State(Scope.Thread)
public abstract class FirstRank {
  /** How many all-reduces a group holds, as when a framework flushes its gradient buckets. */
  static final int GROUP = 64;

  /** Elements of an all-reduce; a library that does nothing takes as long for any number. */
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
  // The same memory, cut up: operations of one group do not share what one of them writes.
  final Buffer[] sends = new Buffer[GROUP];
  final Buffer[] recvs = new Buffer[GROUP];

  /** Makes the communicators. */
  @Setup
  public void open() {
    backend = Backend.nccl();
    List<Communicator> ranks = backend.newCommunicators(CommunicatorConfig.defaults(), 0, 1);
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

  /** Closes them. */
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

  /** Throws unless the library answered success: else it is not the one that does nothing. */
  static int checked(int result) {
    if (result != 0) {
      throw new IllegalStateException("the library answered " + result);
    }
    return result;
  }
}
