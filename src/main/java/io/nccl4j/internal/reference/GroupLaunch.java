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
import io.nccl4j.spi.EnqueuedOperation;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The launching of one group: all calls of one communicator become one piece of work on the stream
 * of its first call, and all pieces on one stream progress together, so that no order of calls can
 * make them wait for each other in a circle.
 *
 * <p>The collectives of a piece run in the order of the calls and its messages beside them. The
 * contract promises no order, and refuses what could tell.
 *
 * <p>Where a communicator's calls name several streams, each of them waits for the whole piece, and
 * the piece for what was enqueued on each of them.
 */
final class GroupLaunch {
  /** One communicator's calls. */
  private static final class Part {
    final HostedRank hostedRank;
    final ReferenceStream lead;
    final Set<ReferenceStream> others = new LinkedHashSet<>();
    final List<EnqueuedOperation> calls = new ArrayList<>();
    final List<ReductionOp> operators = new ArrayList<>();
    RankExecution work;
    long turnNumber;
    int selfSends;

    Part(HostedRank member, ReferenceStream lead) {
      this.hostedRank = member;
      this.lead = lead;
    }

    void makeWork() {
      work = new RankExecution(hostedRank);
      for (int i = 0; i < calls.size(); i++) {
        EnqueuedOperation from = calls.get(i);
        Call call = new Call();
        call.set(
            from.operation(),
            from.sendMemory(),
            from.recvMemory(),
            from.count(),
            operators.get(i),
            from.peer());
        work.add(call);
      }
    }
  }

  private final Map<ReferenceCommunicator, Part> parts = new LinkedHashMap<>();

  private GroupLaunch() {}

  static GroupLaunch of(List<? extends EnqueuedCall> calls) {
    GroupLaunch launch = new GroupLaunch();
    for (EnqueuedCall call : calls) {
      // The contract's own operations are all that this backend has.
      launch.add((EnqueuedOperation) call);
    }
    launch.parts.values().forEach(GroupLaunch::checkSelfMessages);
    return launch;
  }

  private void add(EnqueuedOperation call) {
    ReferenceCommunicator communicator = (ReferenceCommunicator) call.communicatorDriver();
    ReferenceStream stream = (ReferenceStream) call.streamDriver();
    Part part =
        parts.computeIfAbsent(communicator, c -> new Part(communicator.hostedRank(), stream));
    if (stream != part.lead) {
      part.others.add(stream);
    }
    part.calls.add(call);
    part.operators.add(communicator.operator(call.operator()));
    if (call.operation().pointToPoint() && call.peer() == part.hostedRank.rank()) {
      part.selfSends += call.sendMemory() != null ? 1 : -1;
    }
  }

  private static void checkSelfMessages(Part part) {
    if (part.selfSends != 0) {
      throw new NcclInvalidUsageException(
          "Group.run",
          NcclResult.INVALID_USAGE.code(),
          part.hostedRank
              + " has "
              + Math.abs(part.selfSends)
              + (part.selfSends > 0 ? " more sends to" : " more receives from")
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
    after.forEach((lead, mark) -> followers.get(lead).forEach(other -> other.follow(mark)));
  }

  private static void append(ReferenceStream lead, List<Part> together) {
    if (together.size() == 1 && together.getFirst().calls.size() == 1) {
      // Nothing else has to progress with it: as good as a call outside a group, and quicker.
      Part only = together.getFirst();
      EnqueuedOperation call = only.calls.getFirst();
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
    together.forEach(Part::makeWork);
    Part[] parts = together.toArray(Part[]::new);
    RankExecution[] works = together.stream().map(part -> part.work).toArray(RankExecution[]::new);
    lead.append(
        () -> takeTurnNumbers(parts), patience -> lead.note(run(lead, parts, works, patience)));
  }

  private static void takeTurnNumbers(Part[] parts) {
    for (Part part : parts) {
      part.turnNumber = part.hostedRank.takeTurnNumber();
    }
  }

  /** Does the work in the stream's worker. Allocates nothing itself: each turn has to end. */
  private static Throwable run(
      ReferenceStream lead, Part[] parts, RankExecution[] works, IdleStrategy patience) {
    Throwable first = null;
    try {
      int most = 1;
      boolean inOneProcess = true;
      for (Part part : parts) {
        part.work.begin(part.turnNumber, patience);
        most = Math.max(most, part.hostedRank.size());
        inOneProcess &= part.hostedRank.communicator().inOneProcess();
      }
      lead.begins();
      patience.begin(most, inOneProcess);
      RankExecution.drive(works, patience);
    } catch (RuntimeException | Error e) {
      first = e;
      for (RankExecution work : works) {
        work.failUnlessDone(e);
      }
    } finally {
      for (RankExecution work : works) {
        Throwable failure = work.end(false);
        first = first == null ? failure : first;
      }
    }
    return first;
  }
}
