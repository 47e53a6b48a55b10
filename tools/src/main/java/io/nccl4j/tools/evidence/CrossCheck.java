package io.nccl4j.tools.evidence;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CommunicatorList;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/**
 * Runs every collective, type and operator, in-place and out-of-place, on NCCL and on the reference
 * backend with the same inputs. The results must be bitwise equal.
 */
final class CrossCheck {
  /** The most useful first: two processes on one GPU may not have time for all. */
  private static final long[] COUNTS = {255, 1, 4097, 3, 65_537, 524_287};

  private static final long[] FEW_COUNTS = {1, 17};
  private static final int MAX_NOTES = 20;

  /** The largest ratio of the times for one count and the one before; the data grows more. */
  private static final int MAX_TIME_RATIO = 6;

  private final Child child;
  private final Endpoint nccl;
  private final List<Endpoint> reference;
  private final int rank;
  private final boolean reducesFloat8;
  private final Map<String, Map<DataType, Totals>> tallies = new LinkedHashMap<>();
  private long comparisons;
  private long differences;

  /** The number of compared calls of one kind, and of those that differ. */
  private static final class Totals {
    private int compared;
    private int different;

    @Override
    public String toString() {
      return different == 0 ? "ok" : "**" + different + " of " + compared + "**";
    }
  }

  private CrossCheck(Child child, Endpoint nccl, List<Endpoint> reference) {
    this.child = child;
    this.nccl = nccl;
    this.reference = reference;
    this.rank = nccl.rank();
    this.reducesFloat8 = reducesFloat8(nccl.comm());
  }

  static void run(Child child) throws IOException {
    CommunicatorConfig config = CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(40));
    int[] devices = IntStream.range(0, child.size).toArray();
    try (Backend backend = Backend.nccl();
        Backend java = Backend.reference(child.size);
        Communicator comm = child.communicator(backend, config);
        CommunicatorList ranks = java.newCommunicators(devices, config);
        Endpoint nccl = new Endpoint(comm)) {
      List<Endpoint> reference = ranks.stream().map(Endpoint::new).toList();
      CrossCheck check = new CrossCheck(child, nccl, reference);
      check.compareAll();
      check.finish();
      reference.forEach(Endpoint::close);
    }
  }

  /** Returns whether the GPUs are new enough; all ranks agree on this before the first call. */
  private boolean reducesFloat8(Communicator comm) {
    try (Stream stream = comm.newStream();
        Buffer one = comm.newBuffer(DataType.FLOAT8E4M3, 1)) {
      one.fill((byte) 0, stream);
      comm.allReduce(one, one, ReduceOp.SUM, stream);
      stream.synchronize();
      return true;
    } catch (IllegalArgumentException tooOld) {
      child.note("reductions of float8 are skipped: " + tooOld.getMessage());
      return false;
    }
  }

  private void compareAll() throws IOException {
    List<String> done = new ArrayList<>();
    Duration last = Duration.ZERO;
    for (long count : child.quick ? FEW_COUNTS : COUNTS) {
      if (!allHaveTime(last.multipliedBy(MAX_TIME_RATIO))) {
        child.note("count " + count + " and those after it are skipped for lack of time");
        break;
      }
      Duration start = child.elapsed();
      for (DataType type : DataType.values()) {
        for (boolean inPlace : new boolean[] {false, true}) {
          compare(Call.all(type, child.size, count, inPlace, reducesFloat8 || !type.float8()));
        }
      }
      last = child.elapsed().minus(start);
      done.add("" + count);
      child.fact("counts", String.join(", ", done));
      child.table(table());
      child.saveUnfinished(summary());
    }
  }

  /** Returns whether all ranks have enough time, so that they continue or stop together. */
  private boolean allHaveTime(Duration needed) {
    Call call = Call.allReduce(Call.Combine.MAX, DataType.INT32, child.size, 1);
    int late = child.left().compareTo(needed) < 0 ? 1 : 0;
    Buffer latest = nccl.start(call, MemorySegment.ofArray(new int[] {late}));
    boolean none = DataType.INT32.getLong(nccl.download(latest), 0) == 0;
    nccl.free();
    return none;
  }

  /** Enqueues all calls, then compares their results. */
  private void compare(List<Call> calls) {
    List<Buffer> actual = new ArrayList<>();
    List<Buffer> expected = new ArrayList<>();
    for (Call call : calls) {
      List<Buffer> results = new ArrayList<>();
      Group.run(
          () ->
              reference.forEach(
                  each ->
                      results.add(each.start(call, Inputs.orderIndependent(call, each.rank())))));
      expected.add(results.get(rank));
      actual.add(nccl.start(call, Inputs.orderIndependent(call, rank)));
    }
    for (int i = 0; i < calls.size(); i++) {
      if (calls.get(i).receives(rank)) {
        MemorySegment right = reference.get(rank).download(expected.get(i));
        compare(calls.get(i), nccl.download(actual.get(i)), right);
      }
    }
    nccl.free();
    reference.forEach(Endpoint::free);
  }

  private void compare(Call call, MemorySegment actual, MemorySegment right) {
    Totals totals =
        tallies
            .computeIfAbsent(call.label(), label -> new LinkedHashMap<>())
            .computeIfAbsent(call.type(), type -> new Totals());
    totals.compared++;
    comparisons++;
    long at = actual.mismatch(right);
    if (at < 0) {
      return;
    }
    totals.different++;
    differences++;
    if (differences <= MAX_NOTES) {
      long element = at / call.type().bytes();
      child.note(
          "rank %d: %s: element %d is %s, reference %s"
              .formatted(
                  rank,
                  call,
                  element,
                  call.element(actual, element),
                  call.element(right, element)));
    }
  }

  private void finish() {
    child.note(
        "Compared bit for bit, with no tolerance: floats with random mantissas where one operation"
            + " is rounded once, small even numbers for averages and pre-multiplied sums, random"
            + " bits where data is only moved. Elements after each out-of-place result must be"
            + " unchanged.");
    child.end(comparisons, differences == 0, summary());
  }

  private String summary() {
    return "%d results compared with the reference bit for bit, %d differ"
        .formatted(comparisons, differences);
  }

  private Table table() {
    return Table.ofTypes("NCCL compared with the reference backend, rank " + rank, tallies);
  }
}
