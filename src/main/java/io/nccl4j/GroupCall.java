package io.nccl4j;

/**
 * One checked operation: what {@link Group} keeps until the group ends, and what a backend then
 * launches.
 *
 * @param operation what to do
 * @param communicator whose operation it is
 * @param send the data to send, or null where the operation or the rank sends none
 * @param recv where to receive, or null where the operation or the rank receives nothing
 * @param count the count that the C function takes, in elements
 * @param op the operator of a reduction, or null
 * @param peer the root or the peer, or {@link Communicator#NO_PEER}
 * @param stream the stream that orders it
 */
public record GroupCall(
    Operation operation,
    Communicator communicator,
    Buffer send,
    Buffer recv,
    long count,
    ReduceOp op,
    int peer,
    Stream stream) {

  /** Returns the same call on another stream of its device. */
  GroupCall on(Stream other) {
    return other == stream
        ? this
        : new GroupCall(operation, communicator, send, recv, count, op, peer, other);
  }

  /** Throws if anything was closed between the call and the end of its group. */
  void checkStillOpen() {
    stream.checkOpen();
    checkOperandsOpen();
  }

  /** Throws if anything but the stream was closed since the call. */
  void checkOperandsOpen() {
    communicator.checkConnected();
    if (op != null) {
      op.check(communicator, (send == null ? recv : send).type());
    }
    if (send != null) {
      send.checkOpen("send");
    }
    if (recv != null) {
      recv.checkOpen("recv");
    }
  }
}
