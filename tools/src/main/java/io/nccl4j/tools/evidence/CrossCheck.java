package io.nccl4j.tools.evidence;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
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

  private static final Duration FOR_OTHER_CHECKS = Duration.ofSeconds(15);

  private final Child child;
  private final Endpoint nccl;
  private final List<Endpoint> reference;
  private final boolean reducesFloat8;
  private final Map<String, Map<DataType, Totals>> tallies = new LinkedHashMap<>();
  private long comparisons;
  private long differences;
  private int noted;

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
    this.reducesFloat8 = reducesFloat8();
  }

  static void run(Child child) throws IOException {
    CommunicatorConfig config = CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(40));
    try (Backend backend = Backend.nccl();
        Backend java = Backend.reference(child.size);
        Peers peers = new Peers(child)) {
      Communicator comm = peers.communicator(backend, config.withDevice(child.device));
      int[] devices = IntStream.range(0, child.size).toArray();
      List<Endpoint> reference =
          java.newCommunicators(devices, config).stream().map(Endpoint::new).toList();
      try (Endpoint nccl = new Endpoint(comm)) {
        CrossCheck check = new CrossCheck(child, nccl, reference);
        check.compareAll();
        int broken = new OtherChecks(child, peers, backend, nccl).run();
        check.finish(broken);
      }
    }
  }

  /** Returns whether the GPUs are new enough; all ranks agree on this before the first call. */
  private boolean reducesFloat8() {
    Communicator comm = nccl.comm();
    try (Buffer one = comm.newBuffer(DataType.FLOAT8E4M3, 1)) {
      one.fill((byte) 0, nccl.stream());
      comm.allReduce(one, one, ReduceOp.SUM, nccl.stream());
      nccl.stream().synchronize();
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
      if (!allHaveTime(last.multipliedBy(MAX_TIME_RATIO).plus(FOR_OTHER_CHECKS))) {
        child.note("count " + count + " and those after it are skipped for lack of time");
        break;
      }
      Duration start = child.elapsed();
      for (DataType type : DataType.values()) {
        for (boolean inPlace : new boolean[] {false, true}) {
          boolean reduced = reducesFloat8 || !type.float8();
          compare(Call.all(type, child.size, count, inPlace, reduced), count);
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
    int late = child.left().compareTo(needed) < 0 ? 1 : 0;
    MemorySegment spent = MemorySegment.ofArray(new int[] {late});
    Communicator comm = nccl.comm();
    try (Buffer flag = comm.newBuffer(DataType.INT32, 1)) {
      flag.copyFromAsync(spent, nccl.stream());
      comm.allReduce(flag, flag, ReduceOp.MAX, nccl.stream());
      return DataType.INT32.getLong(nccl.download(flag), 0) == 0;
    }
  }

  /** Enqueues all calls, then compares their results. */
  private void compare(List<Call> calls, long seed) {
    List<Buffer> actual = new ArrayList<>();
    List<Buffer> expected = new ArrayList<>();
    for (Call call : calls) {
      List<Buffer> results = new ArrayList<>();
      Group.run(
          () -> {
            for (int rank = 0; rank < child.size; rank++) {
              results.add(reference.get(rank).start(call, Inputs.of(call, rank, seed)));
            }
          });
      expected.add(results.get(child.rank));
      actual.add(nccl.start(call, Inputs.of(call, child.rank, seed)));
    }
    for (int i = 0; i < calls.size(); i++) {
      compare(calls.get(i), nccl.download(actual.get(i)), expected.get(i));
    }
    nccl.free();
    reference.forEach(Endpoint::free);
  }

  private void compare(Call call, MemorySegment actual, Buffer expected) {
    if (!call.receives(child.rank)) {
      return;
    }
    MemorySegment right = reference.get(child.rank).download(expected);
    long from = Endpoint.resultOffset(call, child.rank) * call.type().bytes();
    long bytes = call.recvCount() * call.type().bytes();
    long at = actual.asSlice(from, bytes).mismatch(right.asSlice(from, bytes));
    boolean same = at < 0 && Endpoint.guarded(call, actual);
    Totals totals =
        tallies
            .computeIfAbsent(call.label(), label -> new LinkedHashMap<>())
            .computeIfAbsent(call.type(), type -> new Totals());
    totals.compared++;
    comparisons++;
    if (!same) {
      totals.different++;
      differences++;
      note(call, actual.asSlice(from, bytes), right.asSlice(from, bytes), at);
    }
  }

  private void note(Call call, MemorySegment actual, MemorySegment right, long at) {
    noted++;
    if (noted > MAX_NOTES) {
      return;
    }
    String what = "elements after the result were overwritten";
    if (at >= 0) {
      long element = at / call.type().bytes();
      what =
          "element %d is %s, reference %s"
              .formatted(element, element(call, actual, element), element(call, right, element));
    }
    child.note("rank %d: %s: %s".formatted(child.rank, call, what));
  }

  static Object element(Call call, MemorySegment data, long element) {
    return call.type().floating()
        ? (Object) call.type().get(data, element)
        : (Object) call.type().getLong(data, element);
  }

  private void finish(int broken) {
    child.note(
        "Compared bit for bit, with no tolerance: floats with random mantissas where one operation"
            + " is rounded once, small even numbers for averages and pre-multiplied sums, random"
            + " bits where data is only moved. Elements after each result must be unchanged.");
    child.end(
        comparisons,
        differences + broken == 0,
        summary() + (broken == 0 ? "" : "; " + broken + " other checks failed"));
  }

  private String summary() {
    return "%d results compared with the reference bit for bit, %d differ"
        .formatted(comparisons, differences);
  }

  private Table table() {
    List<String> columns = new ArrayList<>(List.of(""));
    for (DataType type : DataType.values()) {
      columns.add(type.name().toLowerCase(Locale.ROOT));
    }
    List<List<Object>> rows = new ArrayList<>();
    tallies.forEach(
        (label, types) -> {
          List<Object> row = new ArrayList<>(List.of(label));
          for (DataType type : DataType.values()) {
            row.add(types.containsKey(type) ? types.get(type).toString() : "left out");
          }
          rows.add(row);
        });
    return new Table("NCCL compared with the reference backend, rank " + child.rank, columns, rows);
  }
}
