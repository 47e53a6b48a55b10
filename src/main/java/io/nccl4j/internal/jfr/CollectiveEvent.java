package io.nccl4j.internal.jfr;

import jdk.jfr.Category;
import jdk.jfr.DataAmount;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;
import jdk.jfr.Timespan;

/** One operation of one rank, from the call that enqueued it until its completion on the stream. */
@Name("io.nccl4j.Collective")
@Label("Collective")
@Category("nccl4j")
@Description("A collective, send or receive of one rank, from its call to its completion")
@StackTrace(false)
public final class CollectiveEvent extends Event {
  @Label("Operation")
  @Description("The method of Communicator that enqueued it")
  public String operation;

  @Label("Communicator")
  @Description("The same on every rank of it")
  public String communicator;

  @Label("Sequence Number")
  @Description(
      "Of this communicator's collectives, from 1, the same on every rank; of a send or receive,"
          + " among those to or from this peer; 0 if it was rejected")
  public long sequence;

  @Label("Rank")
  public int rank;

  @Label("Ranks")
  public int ranks;

  @Label("First Rank")
  @Description("The rank in the first ancestor of the communicator")
  public int firstRank;

  @Label("Peer")
  @Description("The root or the peer, or -1")
  public int peer;

  @Label("Device")
  public int device;

  @Label("Stream")
  @Description("The stream's number in its process")
  public long stream;

  @Label("Group")
  @Description("A number that operations launched together in this process share, or 0")
  public long group;

  @Label("Type")
  public String type;

  @Label("Reduction")
  @Description("The operator of a reduction, or nothing")
  public String reduction;

  @Label("Count")
  @Description("The count that the C function takes, in elements")
  public long count;

  @Label("Bytes")
  @Description("The size of count elements")
  @DataAmount
  public long bytes;

  @Label("Queued")
  @Description(
      "Time from the call until the stream started it; it ran for the rest of the duration")
  @Timespan(Timespan.NANOSECONDS)
  public long queued;

  @Label("Algorithm")
  @Description("What NCCL chose, such as RING; nothing if no profiler of NCCL is installed")
  public String algorithm;

  @Label("Protocol")
  @Description("What NCCL chose, such as LL128, or nothing")
  public String protocol;

  @Label("Channels")
  @Description("The number of channels that NCCL chose, or 0")
  public int channels;

  @Label("Error")
  @Description("Why it failed, or nothing")
  public String error;

  /** Not recorded; used to determine the error when the operation has ended. */
  public transient boolean wasAborted;
}
