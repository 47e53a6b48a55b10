package io.nccl4j.internal.jfr;

import jdk.jfr.Category;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;

/** The capture of a graph, or its launch on a stream. */
@Name("io.nccl4j.Graph")
@Label("Graph")
@Category("nccl4j")
@Description("The capture of a graph, or a launch from its call to its completion")
@StackTrace(false)
public final class GraphEvent extends Event {
  @Label("Step")
  @Description("capture or launch")
  public String step;

  @Label("Graph")
  @Description("The graph's number in its process")
  public long graph;

  @Label("Operations")
  @Description("The number of its operations")
  public int operations;

  @Label("Communicator")
  @Description("The communicator of its first operation, the same on every rank of it")
  public String communicator;

  @Label("First Rank")
  @Description("The rank in the first ancestor of that communicator, or -1")
  public int firstRank;

  @Label("Device")
  public int device;

  @Label("Stream")
  @Description("The number, in its process, of the stream that was captured or that launches it")
  public long stream;

  @Label("Error")
  @Description("Why it failed, or nothing")
  public String error;

  /** Creates the event and begins it. */
  public GraphEvent(String step, int device, long stream) {
    this.step = step;
    this.device = device;
    this.stream = stream;
    begin();
  }
}
