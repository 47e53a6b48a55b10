package io.nccl4j.internal.jfr;

import jdk.jfr.Category;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;

/** One step in the life cycle of a communicator, on one rank. */
@Name("io.nccl4j.Communicator")
@Label("Communicator")
@Category("nccl4j")
@Description("The creation, a state change, a failure or the end of a communicator, on one rank")
@StackTrace(false)
public final class CommunicatorEvent extends Event {
  @Label("Step")
  @Description(
      "init, split, shrink, grow and join create one; close, abort, revoke, suspend and resume"
          + " change it; failure is recorded when it is first detected")
  public String step;

  @Label("Communicator")
  @Description("The same on every rank of it")
  public String communicator;

  @Label("Name")
  @Description("The name in its configuration, or nothing")
  public String name;

  @Label("Parent")
  @Description("On creation: the communicator that it is created from, or nothing")
  public String parent;

  @Label("Unique Id")
  @Description("On creation: the fingerprint of its id, or nothing on ranks without the id")
  public String uniqueId;

  @Label("Backend")
  public String backend;

  @Label("Rank")
  @Description("-1 if connecting would have determined it")
  public int rank;

  @Label("Ranks")
  @Description("-1 if connecting would have determined it")
  public int ranks;

  @Label("First Rank")
  @Description("The rank in its first ancestor")
  public int firstRank;

  @Label("Device")
  public int device;

  @Label("Error")
  @Description("The failure, or nothing")
  public String error;
}
