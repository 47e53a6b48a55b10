package io.nccl4j.internal.schedule;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.DataType;
import io.nccl4j.Operation;
import io.nccl4j.emulation.EmulatedMachine;
import io.nccl4j.fixtures.Seed;
import io.nccl4j.fixtures.libraries.Releases;
import io.nccl4j.fixtures.libraries.Requirement;
import io.nccl4j.fixtures.programs.FinishedProgram;
import io.nccl4j.internal.schedule.PlannedCollectives.Call;
import io.nccl4j.internal.schedule.PlannedCollectives.Run;
import io.nccl4j.nccl.VersionReport;
import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import io.nccl4j.schedule.TreePattern;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
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
@Timeout(600)
class PlannerTest {
  private static final int CALLS = Integer.getInteger("test.planner.calls", 150);

  private static final FileAttribute<?> OWNER_ONLY =
      PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"));

  @TempDir private Path folder;

  /** The plans of a process. */
  private record Planned(List<Run> runs, List<LoggedOrders> orders, Path file) {}

  /** All ranks are on one host, so they are one node. */
  @ParameterizedTest
  @CsvSource({"RING, LL", "RING, LL128", "RING, SIMPLE", "TREE, LL", "TREE, LL128", "TREE, SIMPLE"})
  void allReducesArePlannedAsPredicted(String algorithm, Protocol protocol) throws Exception {
    compareAllReduces(algorithm, protocol, null);
  }

  /** The order of the ranks and the number of channels depend on the machine. */
  @ParameterizedTest
  @CsvSource({
    "DGX_H100, RING, LL",
    "DGX_H100, TREE, SIMPLE",
    "PCIE, RING, SIMPLE",
    "PCIE, TREE, LL128",
  })
  void allReducesOnOtherMachinesArePlannedAsPredicted(
      EmulatedMachine machine, String algorithm, Protocol protocol) throws Exception {
    if (machine == EmulatedMachine.PCIE && protocol == Protocol.LL128) {
      assumeLl128OnRequest();
    }
    compareAllReduces(algorithm, protocol, machine);
  }

  /** Skips the test if NCCL refuses LL128 where it would not choose it itself. */
  private static void assumeLl128OnRequest() {
    assumeTrue(
        Releases.compare(VersionReport.load().nccl(), "2.31") < 0,
        "this NCCL does not use LL128 between hosts or over PCIe on request");
  }

  private void compareAllReduces(String algorithm, Protocol protocol, EmulatedMachine machine)
      throws Exception {
    Planned planned = plan(Operation.ALL_REDUCE, algorithm, protocol, machine);
    List<Layout> layouts = new ArrayList<>();
    for (int i = 0; i < planned.runs.size(); i++) {
      int ranks = planned.runs.get(i).ranks();
      layouts.add(layout(planned.orders.get(i), protocol, ranks));
    }
    compare(
        planned.file,
        new PlanComparison(planned.runs, new AllReduces(algorithm.equals("RING"), layouts)),
        "all-reduce, %s, %s%s"
            .formatted(algorithm, protocol, machine == null ? "" : ", " + machine));
  }

  /** Each rank is a process. */
  @ParameterizedTest
  @CsvSource({
    "TREE, 3, 1,",
    "TREE, 4, 1,",
    "TREE, 5, 1,",
    "TREE, 8, 1,",
    "TREE, 8, 4, PCIE",
    "RING, 8, 4, DGX_H100",
  })
  void allReducesOfSeveralHostsArePlannedAsPredicted(
      String algorithm, int ranks, int ranksPerHost, EmulatedMachine machine) throws Exception {
    assumeLl128OnRequest();
    String title =
        "all-reduce, %s, LL128, %d ranks, %d for each %s"
            .formatted(algorithm, ranks, ranksPerHost, machine == null ? "host" : machine);
    long seed = Seed.random(title).nextLong();
    Path meet = Files.createDirectory(folder.resolve("meet"), OWNER_ONLY);
    List<Path> logs = new ArrayList<>();
    try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
      List<Future<FinishedProgram>> programs = new ArrayList<>();
      for (int rank = 0; rank < ranks; rank++) {
        logs.add(folder.resolve("log" + rank));
        Map<String, String> environment = environment(algorithm, Protocol.LL128);
        environment.putAll(machine == null ? Map.of() : machine.environment());
        environment.put("NCCL_DEBUG_FILE", logs.getLast().toString());
        environment.put("NCCL_HOSTID", "host" + rank / ranksPerHost);
        environment.put("NCCL_NET", "Socket");
        environment.put("NCCL_SOCKET_IFNAME", "lo");
        List<String> command =
            command(
                Operation.ALL_REDUCE,
                seed,
                "" + rank,
                "" + ranks,
                "" + meet,
                "" + rank % ranksPerHost);
        programs.add(threads.submit(() -> FinishedProgram.run(environment, command)));
      }
      for (Future<FinishedProgram> program : programs) {
        assertEquals(0, program.get().status(), program.get()::output);
      }
    }
    List<List<String>> lines = new ArrayList<>();
    for (Path log : logs) {
      lines.add(Files.readAllLines(log));
    }
    LoggedOrders orders = LoggedOrders.ofProcesses(lines, ranksPerHost);
    Run run = PlannedCollectives.run(seed, CALLS, ranks);
    compare(
        folder.resolve("plan"),
        new PlanComparison(
            List.of(run),
            new AllReduces(
                algorithm.equals("RING"), List.of(layout(orders, Protocol.LL128, ranksPerHost)))),
        title);
  }

  private static Layout layout(LoggedOrders orders, Protocol protocol, int ranksPerNode) {
    return ofRelease(Layout.defaults())
        .withProtocol(protocol)
        .withChannels(orders.rings().size())
        .withRingOrders(orders.rings())
        .withTreeOrders(orders.trees())
        .withNodes(ranksPerNode, TreePattern.TREE);
  }

  /**
   * The schedules do not model how other collectives are divided among channels. Their rings are
   * those of all-reduces, and every element is in one channel's part.
   */
  @ParameterizedTest
  @EnumSource(names = {"REDUCE_SCATTER", "ALL_GATHER", "BROADCAST", "REDUCE"})
  void otherCollectivesUseTheSameRings(Operation operation) throws Exception {
    Planned planned = plan(operation, "RING", Protocol.SIMPLE, null);
    PlanComparison comparison =
        new PlanComparison(planned.runs, new Rings(operation, planned.orders));
    compare(planned.file, comparison, operation.method() + ", RING, SIMPLE");
  }

  /** Sets what older releases do differently. */
  private static Layout ofRelease(Layout layout) {
    boolean older = Releases.compare(VersionReport.load().nccl(), "2.29") < 0;
    return older ? layout.withCellBytes(8 << 10) : layout;
  }

  private static void compare(Path plan, PlanComparison comparison, String title)
      throws IOException {
    try (Stream<String> lines = Files.lines(plan)) {
      lines.forEach(comparison::accept);
    }
    System.out.printf("%s: %s%n", title, comparison.summary());
    assertEquals(0, comparison.different(), () -> comparison.notes() + Seed.hint());
    assertEquals(comparison.expectedCollectives(), comparison.collectives());
  }

  private Planned plan(
      Operation operation, String algorithm, Protocol protocol, EmulatedMachine machine)
      throws Exception {
    long seed = Seed.random(operation + algorithm + protocol + machine).nextLong();
    Map<String, String> environment = environment(algorithm, protocol);
    environment.putAll(machine == null ? Map.of() : machine.environment());
    FinishedProgram program = FinishedProgram.run(environment, command(operation, seed));
    assertEquals(0, program.status(), program::output);
    List<Run> runs = PlannedCollectives.runs(seed, CALLS);
    List<Integer> sizes = runs.stream().map(Run::ranks).toList();
    List<String> log = Files.readAllLines(folder.resolve("log"));
    return new Planned(runs, LoggedOrders.of(log, sizes), folder.resolve("plan"));
  }

  private Map<String, String> environment(String algorithm, Protocol protocol) {
    Map<String, String> environment = new HashMap<>();
    environment.put("NCCL_ALGO", algorithm);
    environment.put("NCCL_PROTO", protocol.name());
    // NCCL 2.31 would plan kernels for symmetric memory, or refuse, for small sums with LL.
    environment.put("NCCL_WIN_ENABLE", "0");
    // Rings with Simple use fewer if all channels together are slow.
    environment.put("NCCL_NTHREADS", "512");
    environment.put("NCCL_MAX_P2P_NCHANNELS", "1");
    environment.put("NCCL_DEBUG", "INFO");
    environment.put("NCCL_DEBUG_SUBSYS", "INIT");
    environment.put("NCCL_DEBUG_FILE", folder.resolve("log").toString());
    environment.put("NCCL4J_STANDIN_DEVICES", "8");
    environment.put("NCCL4J_STANDIN_PLAN", folder.resolve("plan").toString());
    environment.put("NCCL4J_STANDIN_PLAN_ONLY", "1");
    return environment;
  }

  private static List<String> command(Operation operation, long seed, String... rank) {
    List<String> command =
        FinishedProgram.java(
            "-Dio.nccl4j.nccl.library=" + Requirement.library("nccl"),
            "-Dio.nccl4j.cudart.library=" + Requirement.library("cudart"),
            PlannedCollectives.class.getName(),
            operation.name(),
            Long.toString(seed),
            Integer.toString(CALLS));
    command.addAll(List.of(rank));
    return command;
  }

  /** Returns the ranks of a ring in order, beginning with one. */
  private static List<Integer> from(int rank, Ring ring) {
    int position = ring.position(rank);
    return IntStream.range(0, ring.size())
        .mapToObj(i -> ring.rank((position + i) % ring.size()))
        .toList();
  }

  /** All-reduces, with the layout of each run. */
  private record AllReduces(boolean ring, List<Layout> layouts)
      implements PlanComparison.Prediction {
    @Override
    public String of(int number, Run run, Call call, PlanLine line) {
      Layout layout = layouts.get(number);
      int elementBytes = call.type().bytes();
      Schedule schedule =
          ring
              ? new RingSchedule(layout, run.ranks(), call.count(), elementBytes)
              : new TreeSchedule(layout, run.ranks(), call.count(), elementBytes);
      if (line.channel() >= schedule.channels()) {
        return schedule.channels() + " channels";
      }
      return schedule instanceof RingSchedule rings
          ? ofRing(rings, call, line)
          : ofTree((TreeSchedule) schedule, call, line);
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
              layouts.getFirst().protocol(),
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
