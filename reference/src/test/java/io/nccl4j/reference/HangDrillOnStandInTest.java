package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Operation;
import io.nccl4j.drill.Drill;
import io.nccl4j.drill.DrillCall;
import io.nccl4j.drill.DrillFault;
import io.nccl4j.drill.DrillTable;
import io.nccl4j.drill.Outcome;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.function.Predicate;
import org.junit.jupiter.api.Test;

/**
 * The hang drill of the NCCL backend on the stand-in. Its ranks are threads: a rank that dies
 * aborts its communicator, and one that is stopped makes no call. NCCL itself waits without a
 * bound, and nccl4j ends its calls and its operations. The stand-in's RAS service tells who is
 * late, where NCCL counts the calls.
 */
@OnStandIn
class HangDrillOnStandInTest {
  private static final CommunicatorConfig LONG_TIMEOUT =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(60));
  private static final Duration TIMEOUT = Duration.ofSeconds(2);

  private static final Duration LIMIT = Duration.ofSeconds(40);
  private static final long SLACK_MILLIS = 20_000;
  private static final String BOUNDED = "NCCL has no time-out; the deadline of nccl4j has ended it";

  /** What NCCL counts; the other collectives consist of sends and receives. */
  private static final Set<Operation> COUNTED =
      EnumSet.of(
          Operation.ALL_REDUCE,
          Operation.BROADCAST,
          Operation.REDUCE,
          Operation.ALL_GATHER,
          Operation.REDUCE_SCATTER);

  private static final String STAND_IN_ONLY =
      "the stand-in detects this; NCCL hangs or computes something else";

  @Test
  void ranksOfTheStandIn_endEveryCell() throws Exception {
    DrillTable table = new DrillTable("stand-in");
    try (ServerSocket free = new ServerSocket(0)) {
      StandIn.setEnvironment("NCCL_RAS_ADDR", "localhost:" + free.getLocalPort());
    }
    StandIn.setEnvironment("NCCL4J_STANDIN_RAS", "1");
    try (Backend backend = Backend.nccl()) {
      StandIn.connect(true);
      for (Drill.CellResult result : Drill.run(backend, firstCalls())) {
        add(table, result, TIMEOUT, "the first call, which connects");
      }
      StandIn.connect(false);
      for (Drill.CellResult result : Drill.run(backend, laterCalls())) {
        DrillFault fault = result.cell().fault();
        String note = bounded(fault) ? BOUNDED : fault == DrillFault.LATE ? "" : STAND_IN_ONLY;
        add(table, result, bounded(fault) ? TIMEOUT : Duration.ZERO, note);
      }
    } finally {
      StandIn.reset();
      StandIn.setEnvironment("NCCL4J_STANDIN_RAS", null);
      StandIn.setEnvironment("NCCL_RAS_ADDR", null);
    }
    table.finish(8 * 8);
  }

  private static List<Drill.Cell> firstCalls() {
    return DrillCall.collectives().stream()
        .map(
            operation ->
                new Drill.Cell(
                    operation, DrillFault.MISSING, LONG_TIMEOUT.withTimeout(TIMEOUT), false, LIMIT))
        .toList();
  }

  private static List<Drill.Cell> laterCalls() {
    List<Drill.Cell> cells = new ArrayList<>();
    for (Operation operation : DrillCall.collectives()) {
      for (DrillFault fault : DrillFault.values()) {
        cells.add(
            bounded(fault)
                ? new Drill.Cell(operation, fault, LONG_TIMEOUT.withTimeout(TIMEOUT), true, LIMIT)
                : new Drill.Cell(operation, fault, LONG_TIMEOUT, true, LIMIT));
      }
    }
    return cells;
  }

  private static boolean bounded(DrillFault fault) {
    return fault == DrillFault.MISSING || fault == DrillFault.STOPPED || fault == DrillFault.DEAD;
  }

  private static void add(DrillTable table, Drill.CellResult result, Duration least, String note) {
    Drill.Cell cell = result.cell();
    for (int rank = 0; rank < result.outcomes().size(); rank++) {
      table.add(
          cell.operation(),
          cell.fault(),
          rank,
          result.outcomes().get(rank),
          note,
          expected(cell),
          least.toMillis(),
          least.toMillis() + SLACK_MILLIS);
    }
  }

  private static Predicate<String> expected(Drill.Cell cell) {
    String own = cell.operation().method();
    if (!cell.warm()) {
      return Outcome.text("NcclTimeoutException", "[]", "[]", own, 1)::equals;
    }
    if (bounded(cell.fault())) {
      boolean dead = cell.fault() == DrillFault.DEAD;
      String failed = dead ? "[2]" : "[]";
      String missing = !dead && COUNTED.contains(cell.operation()) ? "[2]" : "[]";
      return Outcome.text("NcclTimeoutException", failed, missing, own, 2)::equals;
    }
    return cell.fault() == DrillFault.LATE
        ? Outcome.RIGHT::equals
        : text -> text.contains("NcclInvalidUsageException, failed [], missing []");
  }
}
