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
@Description("A communicator is made, changes, fails or ends, on one rank")
@StackTrace(false)
final class CommunicatorEvent extends Event {
  @Label("Step")
  @Description(
      "init, split, shrink, grow and join make one; close, abort, revoke, suspend and resume change"
          + " it; failure is told when it is first seen")
  String step;

  @Label("Communicator")
  @Description("The same on every rank of it")
  String communicator;

  @Label("Name")
  @Description("What its configuration calls it, or nothing")
  String name;

  @Label("Parent")
  @Description("Where it is made: the communicator that it is made of, or nothing")
  String parent;

  @Label("Unique Id")
  @Description("Where it is made: the fingerprint of its id, or nothing on ranks without it")
  String uniqueId;

  @Label("Backend")
  String backend;

  @Label("Rank")
  @Description("-1 where only connecting would have told")
  int rank;

  @Label("Ranks")
  @Description("-1 where only connecting would have told")
  int ranks;

  @Label("First Rank")
  @Description("The rank in the communicator from which it descends")
  int firstRank;

  @Label("Device")
  int device;

  @Label("Error")
  @Description("Why the step failed, or what has failed; nothing if nothing has")
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
