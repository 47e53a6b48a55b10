package io.nccl4j;

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
final class GraphEvent extends Event {
  @Label("Step")
  @Description("capture or launch")
  String step;

  @Label("Graph")
  @Description("The graph's number in its process")
  long graph;

  @Label("Operations")
  @Description("The number of its operations")
  int operations;

  @Label("Communicator")
  @Description("The communicator of its first operation, the same on every rank of it")
  String communicator;

  @Label("First Rank")
  @Description("The rank in the first ancestor of that communicator, or -1")
  int firstRank;

  @Label("Device")
  int device;

  @Label("Stream")
  @Description("The number, in its process, of the stream that was captured or that launches it")
  long stream;

  @Label("Error")
  @Description("Why it failed, or nothing")
  String error;

  GraphEvent(String step, Stream on) {
    this.step = step;
    this.device = on.device();
    this.stream = on.number();
    begin();
  }

  void of(long launched, int size, CommunicatorCore first) {
    graph = launched;
    operations = size;
    communicator = first == null ? null : first.identity();
    firstRank = first == null ? -1 : first.firstRank();
  }
}
