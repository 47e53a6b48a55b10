package io.nccl4j;

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
final class CommunicatorEvent extends Event {
  @Label("Step")
  @Description(
      "init, split, shrink, grow and join create one; close, abort, revoke, suspend and resume"
          + " change it; failure is recorded when it is first detected")
  String step;

  @Label("Communicator")
  @Description("The same on every rank of it")
  String communicator;

  @Label("Name")
  @Description("The name in its configuration, or nothing")
  String name;

  @Label("Parent")
  @Description("On creation: the communicator that it is created from, or nothing")
  String parent;

  @Label("Unique Id")
  @Description("On creation: the fingerprint of its id, or nothing on ranks without the id")
  String uniqueId;

  @Label("Backend")
  String backend;

  @Label("Rank")
  @Description("-1 if connecting would have determined it")
  int rank;

  @Label("Ranks")
  @Description("-1 if connecting would have determined it")
  int ranks;

  @Label("First Rank")
  @Description("The rank in its first ancestor")
  int firstRank;

  @Label("Device")
  int device;

  @Label("Error")
  @Description("The failure, or nothing")
  String error;

  void record(CommunicatorCore of, String what) {
    if (shouldCommit()) {
      CommunicatorLineage lineage = of.lineage();
      step = what;
      communicator = of.identity();
      name = of.config().name();
      parent = lineage == null || lineage.parent() == null ? null : lineage.parent().identity();
      uniqueId = lineage == null ? null : lineage.fingerprint();
      backend = of.backend().name();
      rank = of.rank();
      ranks = of.size();
      firstRank = of.firstRank();
      device = of.device();
      commit();
    }
  }
}
