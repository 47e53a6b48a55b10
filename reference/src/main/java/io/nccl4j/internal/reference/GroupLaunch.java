package io.nccl4j.internal.reference;

import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclResult;
import io.nccl4j.internal.reference.collective.Call;
import io.nccl4j.internal.reference.rank.HostedRank;
import io.nccl4j.internal.reference.rank.IdleStrategy;
import io.nccl4j.internal.reference.rank.RankExecution;
import io.nccl4j.internal.reference.reduce.ReductionOp;
import io.nccl4j.internal.reference.stream.EventRecord;
import io.nccl4j.internal.reference.stream.ReferenceStream;
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
    final List<EnqueuedCall> calls = new ArrayList<>();
    final List<ReductionOp> operators = new ArrayList<>();
    RankExecution execution;
    long turnNumber;
    int selfSends;

    Part(HostedRank hostedRank, ReferenceStream lead) {
      this.hostedRank = hostedRank;
      this.lead = lead;
    }

    void createExecution() {
      execution = new RankExecution(hostedRank);
      for (int i = 0; i < calls.size(); i++) {
        EnqueuedCall from = calls.get(i);
        Call call = new Call();
        call.set(
            from.operation(),
            from.sendMemory(),
            from.recvMemory(),
            from.count(),
            operators.get(i),
            from.peer());
        execution.add(call);
      }
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
    part.calls.add(call);
    part.operators.add(communicator.operator(call.operator()));
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
      throw new NcclInvalidUsageException(
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
          append(lead, together);
          if (!followers.get(lead).isEmpty()) {
            after.put(lead, lead.record());
          }
        });
    after.forEach((lead, record) -> followers.get(lead).forEach(other -> other.follow(record)));
  }

  private static void append(ReferenceStream lead, List<Part> together) {
    if (together.size() == 1 && together.getFirst().calls.size() == 1) {
      // Nothing has to progress together with it, so launch it like a call outside a group.
      Part only = together.getFirst();
      EnqueuedCall call = only.calls.getFirst();
      lead.launch(
          only.hostedRank,
          call.operation(),
          call.sendMemory(),
          call.recvMemory(),
          call.count(),
          only.operators.getFirst(),
          call.peer());
      return;
    }
    together.forEach(Part::createExecution);
    Part[] parts = together.toArray(Part[]::new);
    RankExecution[] executions =
        together.stream().map(part -> part.execution).toArray(RankExecution[]::new);
    lead.append(
        () -> takeTurnNumbers(parts),
        idleStrategy -> lead.note(run(lead, parts, executions, idleStrategy)));
  }

  private static void takeTurnNumbers(Part[] parts) {
    for (Part part : parts) {
      part.turnNumber = part.hostedRank.takeTurnNumber();
    }
  }

  /** Runs the executions in the stream's worker. Allocates nothing: each turn has to end. */
  private static Throwable run(
      ReferenceStream lead, Part[] parts, RankExecution[] executions, IdleStrategy idleStrategy) {
    Throwable first = null;
    try {
      int maxSize = 1;
      boolean inOneProcess = true;
      for (Part part : parts) {
        part.execution.begin(part.turnNumber, idleStrategy);
        maxSize = Math.max(maxSize, part.hostedRank.size());
        inOneProcess &= part.hostedRank.communicator().inOneProcess();
      }
      lead.begins();
      idleStrategy.begin(maxSize, inOneProcess);
      RankExecution.drive(executions, idleStrategy);
    } catch (RuntimeException | Error e) {
      first = e;
      for (RankExecution execution : executions) {
        execution.failUnlessDone(e);
      }
    } finally {
      for (RankExecution execution : executions) {
        Throwable failure = execution.end(false);
        first = first == null ? failure : first;
      }
    }
    return first;
  }
}
