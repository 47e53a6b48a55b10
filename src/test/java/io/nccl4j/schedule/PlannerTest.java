package io.nccl4j.schedule;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.DataType;
import io.nccl4j.Operation;
import io.nccl4j.fixtures.Seed;
import io.nccl4j.fixtures.libraries.OnEmulatedNccl;
import io.nccl4j.fixtures.libraries.Requirement;
import io.nccl4j.fixtures.programs.FinishedProgram;
import io.nccl4j.schedule.PlannedCollectives.Call;
import io.nccl4j.schedule.PlannedCollectives.Run;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Compares the decisions of NCCL's own planner with the schedules: the emulated CUDA writes what
 * each launch says about channels, shares, offsets, chunks, rings and trees, and moves no data.
 * {@code -Dtest.planner.calls=} sets the number of collectives on each of the 7 communicators.
 */
@OnEmulatedNccl
@Timeout(600)
class PlannerTest {
  private static final int CALLS = Integer.getInteger("test.planner.calls", 150);

  @TempDir private Path folder;

  /** The plans of a process. */
  private record Planned(List<Run> runs, List<LoggedOrders> orders, Path file) {}

  @ParameterizedTest
  @CsvSource({"RING, LL", "RING, LL128", "RING, SIMPLE", "TREE, LL", "TREE, LL128", "TREE, SIMPLE"})
  void allReducesArePlannedAsPredicted(String algorithm, Protocol protocol) throws Exception {
    Planned planned = plan(Operation.ALL_REDUCE, algorithm, protocol);
    boolean ring = algorithm.equals("RING");
    PlanComparison comparison =
        new PlanComparison(planned.runs, new AllReduces(ring, protocol, planned.orders));
    compare(planned, comparison, "all-reduce, " + algorithm + ", " + protocol);
  }

  /**
   * The schedules do not model how other collectives are divided among channels. Their rings are
   * those of all-reduces, and every element is in one channel's part.
   */
  @ParameterizedTest
  @EnumSource(names = {"REDUCE_SCATTER", "ALL_GATHER", "BROADCAST", "REDUCE"})
  void otherCollectivesUseTheSameRings(Operation operation) throws Exception {
    Planned planned = plan(operation, "RING", Protocol.SIMPLE);
    PlanComparison comparison =
        new PlanComparison(planned.runs, new Rings(operation, planned.orders));
    compare(planned, comparison, operation.method() + ", RING, SIMPLE");
  }

  private static void compare(Planned planned, PlanComparison comparison, String title)
      throws IOException {
    try (Stream<String> lines = Files.lines(planned.file)) {
      lines.forEach(comparison::accept);
    }
    System.out.printf("%s: %s%n", title, comparison.summary());
    assertEquals(0, comparison.different(), () -> comparison.notes() + Seed.hint());
    assertEquals((long) planned.runs.size() * CALLS, comparison.collectives());
  }

  private Planned plan(Operation operation, String algorithm, Protocol protocol) throws Exception {
    long seed = Seed.random(operation + algorithm + protocol).nextLong();
    Path plan = folder.resolve("plan");
    Path log = folder.resolve("log");
    Map<String, String> environment =
        Map.of(
            "NCCL_ALGO", algorithm,
            "NCCL_PROTO", protocol.name(),
            "NCCL_MAX_P2P_NCHANNELS", "1",
            "NCCL_DEBUG", "INFO",
            "NCCL_DEBUG_SUBSYS", "INIT",
            "NCCL_DEBUG_FILE", log.toString(),
            "NCCL4J_STANDIN_DEVICES", "8",
            "NCCL4J_STANDIN_PLAN", plan.toString(),
            "NCCL4J_STANDIN_PLAN_ONLY", "1");
    FinishedProgram program =
        FinishedProgram.run(
            environment,
            FinishedProgram.java(
                "-Dio.nccl4j.nccl.library=" + Requirement.library("nccl"),
                "-Dio.nccl4j.cudart.library=" + Requirement.library("cudart"),
                PlannedCollectives.class.getName(),
                operation.name(),
                Long.toString(seed),
                Integer.toString(CALLS)));
    assertEquals(0, program.status(), program::output);
    List<Run> runs = PlannedCollectives.runs(seed, CALLS);
    List<Integer> sizes = runs.stream().map(Run::ranks).toList();
    return new Planned(runs, LoggedOrders.of(Files.readAllLines(log), sizes), plan);
  }

  /** Returns the ranks of a ring in order, beginning with one. */
  private static List<Integer> from(int rank, Ring ring) {
    int position = ring.position(rank);
    return IntStream.range(0, ring.size())
        .mapToObj(i -> ring.rank((position + i) % ring.size()))
        .toList();
  }

  /** All-reduces on one host: all ranks are one node. */
  private record AllReduces(boolean ring, Protocol protocol, List<LoggedOrders> orders)
      implements PlanComparison.Prediction {
    @Override
    public String of(int number, Run run, Call call, PlanLine line) {
      LoggedOrders logged = orders.get(number);
      Layout layout =
          Layout.defaults()
              .withProtocol(protocol)
              .withChannels(logged.rings().size())
              .withRingOrders(logged.rings())
              .withTreeOrders(logged.trees())
              .withNodes(run.ranks(), TreePattern.TREE);
      int elementBytes = call.type().bytes();
      return ring
          ? ofRing(new RingSchedule(layout, run.ranks(), call.count(), elementBytes), call, line)
          : ofTree(new TreeSchedule(layout, run.ranks(), call.count(), elementBytes), call, line);
    }

    private String ofRing(RingSchedule schedule, Call call, PlanLine line) {
      return common(schedule, call, line)
          + " chunk "
          + schedule.chunkCount()
          + " ring "
          + from(line.rank(), schedule.ring(line.channel()));
    }

    private String ofTree(TreeSchedule schedule, Call call, PlanLine line) {
      Tree tree = schedule.tree(line.channel());
      List<Integer> children =
          IntStream.range(0, tree.children(line.rank()))
              .mapToObj(i -> tree.child(line.rank(), i))
              .toList();
      return common(schedule, call, line)
          + " chunk "
          + schedule.chunkCount(line.channel())
          + " up "
          + tree.parent(line.rank())
          + " down "
          + children;
    }

    private String common(Schedule schedule, Call call, PlanLine line) {
      int channel = line.channel();
      return "%s %s %s 0-%d offset %d part %d count %d"
          .formatted(
              planned(call.type()),
              ring ? "RING" : "TREE",
              protocol,
              schedule.channels() - 1,
              schedule.begin(channel),
              schedule.end(channel) - schedule.begin(channel),
              schedule.count());
    }

    /** Integers are added as unsigned ones. */
    private static DataType planned(DataType type) {
      return switch (type) {
        case INT8 -> DataType.UINT8;
        case INT32 -> DataType.UINT32;
        case INT64 -> DataType.UINT64;
        default -> type;
      };
    }

    @Override
    public String of(PlanLine line) {
      String links =
          ring
              ? " ring " + line.numbers("ring")
              : " up " + line.number("tree-up") + " down " + line.treeDown();
      return "%s %s %s %s offset %s part %s count %s chunk %s%s"
          .formatted(
              line.text("type").toUpperCase(Locale.ROOT),
              line.text("algorithm"),
              line.text("protocol"),
              line.text("channels"),
              line.text("offset"),
              line.text("part"),
              line.text("count"),
              line.text("chunk"),
              links);
    }
  }

  /** Other collectives; those that only move data count bytes. */
  private record Rings(Operation operation, List<LoggedOrders> orders)
      implements PlanComparison.Prediction {
    @Override
    public String of(int number, Run run, Call call, PlanLine line) {
      List<Integer> order = orders.get(number).rings().get(line.channel());
      long count = operation.reduces() ? call.count() : call.count() * call.type().bytes();
      int root = operation.rooted() ? call.root(run.ranks()) : 0;
      return "count %d root %d ring %s".formatted(count, root, from(line.rank(), Ring.of(order)));
    }

    @Override
    public String of(PlanLine line) {
      return "count %s root %s ring %s"
          .formatted(line.text("count"), line.text("root"), line.numbers("ring"));
    }
  }
}
