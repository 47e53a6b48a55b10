package io.nccl4j.internal.jfr;

import jdk.jfr.Category;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;
import jdk.jfr.Timespan;

/** How long the kernel of an operation ran, reported some time after its end. */
@Name("io.nccl4j.Kernel")
@Label("Kernel")
@Category("nccl4j")
@Description(
    "The time that the kernel of an operation took on one rank, if NCCL's profiler reports it")
@StackTrace(false)
public final class KernelEvent extends Event {
  @Label("Operation")
  public String operation;

  @Label("Communicator")
  public String communicator;

  @Label("Sequence Number")
  @Description("That of the operation's event")
  public long sequence;

  @Label("Rank")
  public int rank;

  @Label("Peer")
  @Description("The root or the peer, or -1")
  public int peer;

  @Label("Time")
  @Description("From the start of its first channel to the end of its last one, by the GPU's timer")
  @Timespan(Timespan.NANOSECONDS)
  public long nanos;

  /** Creates the event of an operation. */
  public KernelEvent(CollectiveEvent operation, long nanos) {
    this.operation = operation.operation;
    this.communicator = operation.communicator;
    this.sequence = operation.sequence;
    this.rank = operation.rank;
    this.peer = operation.peer;
    this.nanos = nanos;
  }
}
