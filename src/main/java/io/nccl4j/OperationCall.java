package io.nccl4j;

import java.util.List;
import java.util.Objects;

/**
 * One operation of the contract, for its backend to launch.
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
public record OperationCall(
    Operation operation,
    Communicator communicator,
    Buffer send,
    Buffer recv,
    long count,
    ReduceOp op,
    int peer,
    Stream stream)
    implements GroupCall {

  @Override
  public OperationCall on(Stream other) {
    return other == stream
        ? this
        : new OperationCall(operation, communicator, send, recv, count, op, peer, other);
  }

  @Override
  public void checkOperandsOpen() {
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

  @Override
  public List<Buffer> operands() {
    Buffer scalar = op instanceof ReduceOp.PreMulSum created ? created.scalar() : null;
    return java.util.stream.Stream.of(send, recv, scalar).filter(Objects::nonNull).toList();
  }
}
