package io.nccl4j;

import org.jspecify.annotations.NullMarked;

/** The operations that a communicator enqueues on a stream. */
@NullMarked
public enum Operation {
  /** Every rank gets the reduction of all ranks' data. C: {@code ncclAllReduce}. */
  ALL_REDUCE("allReduce", "ncclAllReduce", true, false),
  /** Every rank gets the root's data. C: {@code ncclBroadcast}. */
  BROADCAST("broadcast", "ncclBroadcast", false, true),
  /** The root gets the reduction of all ranks' data. C: {@code ncclReduce}. */
  REDUCE("reduce", "ncclReduce", true, true),
  /** Every rank gets every rank's data, in rank order. C: {@code ncclAllGather}. */
  ALL_GATHER("allGather", "ncclAllGather", false, false),
  /**
   * Every rank gets its own slice of the reduction of all ranks' data. C: {@code
   * ncclReduceScatter}.
   */
  REDUCE_SCATTER("reduceScatter", "ncclReduceScatter", true, false),
  /** Every rank sends slice r to rank r and gets one slice from each. C: {@code ncclAlltoAll}. */
  ALL_TO_ALL("allToAll", "ncclAlltoAll", false, false),
  /** The root gets every rank's data, in rank order. C: {@code ncclGather}. */
  GATHER("gather", "ncclGather", false, true),
  /** Every rank gets its own slice of the root's data. C: {@code ncclScatter}. */
  SCATTER("scatter", "ncclScatter", false, true),
  /** One rank sends data to one peer, which must receive it. C: {@code ncclSend}. */
  SEND("send", "ncclSend", false, false),
  /** This rank receives data from one peer. C: {@code ncclRecv}. */
  RECV("recv", "ncclRecv", false, false);

  private final String method;
  private final String function;
  private final boolean reduces;
  private final boolean rooted;

  Operation(String method, String function, boolean reduces, boolean rooted) {
    this.method = method;
    this.function = function;
    this.reduces = reduces;
    this.rooted = rooted;
  }

  /** {@return the name of the method of {@link Communicator} that enqueues this operation} */
  public String method() {
    return method;
  }

  /** {@return the name of NCCL's function for this operation} */
  public String function() {
    return function;
  }

  /** {@return whether this operation takes a {@link ReduceOp}} */
  public boolean reduces() {
    return reduces;
  }

  /** {@return whether this operation takes a root rank} */
  public boolean rooted() {
    return rooted;
  }

  /** {@return whether this operation involves one peer rather than all ranks} */
  public boolean pointToPoint() {
    return this == SEND || this == RECV;
  }
}
