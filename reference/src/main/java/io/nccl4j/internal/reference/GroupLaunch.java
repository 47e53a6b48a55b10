package io.nccl4j.internal.reference;

import io.nccl4j.NcclResult;
import io.nccl4j.internal.reference.collective.Call;
import io.nccl4j.internal.reference.rank.HostedRank;
import io.nccl4j.internal.reference.rank.RankExecution;
import io.nccl4j.internal.reference.stream.EventRecord;
import io.nccl4j.internal.reference.stream.ReferenceStream;
import io.nccl4j.spi.Contract;
import io.nccl4j.spi.EnqueuedCall;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The launch of a group. All calls of one communicator become one execution on the stream of its
 * first call. All executions on one stream progress together, so that no order of calls can
 * deadlock.
 *
 * <p>The collectives of an execution run in the order of the calls, concurrently with its messages.
 * The contract promises no order, and refuses groups that could observe one.
 *
 * <p>If a communicator's calls name several streams, each stream waits for the whole execution, and
 * the execution waits for the work enqueued before on each stream.
 */
final class GroupLaunch {
  /** The calls of one communicator. */
  private static final class Part {
    final HostedRank hostedRank;
    final ReferenceStream lead;
    final Set<ReferenceStream> others = new LinkedHashSet<>();
    final List<Call> calls = new ArrayList<>();
    int selfSends;

    Part(HostedRank hostedRank, ReferenceStream lead) {
      this.hostedRank = hostedRank;
      this.lead = lead;
    }
  }

  private final Map<ReferenceCommunicator, Part> parts = new LinkedHashMap<>();

  private GroupLaunch() {}

  static GroupLaunch of(List<? extends EnqueuedCall> calls) {
    GroupLaunch launch = new GroupLaunch();
    calls.forEach(launch::add);
    launch.parts.values().forEach(part -> checkSelfMessages(part.hostedRank, part.selfSends));
    return launch;
  }

  private void add(EnqueuedCall call) {
    ReferenceCommunicator communicator = (ReferenceCommunicator) call.communicatorDriver();
    ReferenceStream stream = (ReferenceStream) call.streamDriver();
    Part part =
        parts.computeIfAbsent(communicator, c -> new Part(communicator.hostedRank(), stream));
    if (stream != part.lead) {
      part.others.add(stream);
    }
    part.calls.add(communicator.call(call));
    part.selfSends += selfSends(call, part.hostedRank);
  }

  /** Returns 1 for a send to this rank itself, -1 for a receive from it, else 0. */
  static int selfSends(EnqueuedCall call, HostedRank hostedRank) {
    if (!call.operation().pointToPoint() || call.peer() != hostedRank.rank()) {
      return 0;
    }
    return call.sendMemory() != null ? 1 : -1;
  }

  /**
   * Throws unless a rank's sends to itself and its receives from itself match.
   *
   * @param selfSends the sends without the receives
   */
  static void checkSelfMessages(HostedRank hostedRank, int selfSends) {
    if (selfSends != 0) {
      throw Contract.get()
          .failure(
              "Group.run",
              NcclResult.INVALID_USAGE.code(),
              hostedRank
                  + " has "
                  + Math.abs(selfSends)
                  + (selfSends > 0 ? " more sends to" : " more receives from")
                  + " itself than the other way round in one group",
              "");
    }
  }

  void launch() {
    Map<ReferenceStream, List<Part>> perLead = new LinkedHashMap<>();
    Map<ReferenceStream, EventRecord> before = new LinkedHashMap<>();
    for (Part part : parts.values()) {
      perLead.computeIfAbsent(part.lead, s -> new ArrayList<>()).add(part);
      part.others.forEach(other -> before.computeIfAbsent(other, ReferenceStream::record));
    }
    Map<ReferenceStream, Set<ReferenceStream>> followers = new LinkedHashMap<>();
    perLead.forEach(
        (lead, together) -> {
          Set<ReferenceStream> others = new LinkedHashSet<>();
          together.forEach(part -> others.addAll(part.others));
          others.forEach(other -> lead.follow(before.get(other)));
          followers.put(lead, others);
        });
    Map<ReferenceStream, EventRecord> after = new LinkedHashMap<>();
    perLead.forEach(
        (lead, together) -> {
          lead.launch(
              together.stream()
                  .map(part -> new RankExecution(part.hostedRank, part.calls))
                  .toList());
          if (!followers.get(lead).isEmpty()) {
            after.put(lead, lead.record());
          }
        });
    after.forEach((lead, record) -> followers.get(lead).forEach(other -> other.follow(record)));
  }
}
