package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Operation;
import io.nccl4j.drill.Drill;
import io.nccl4j.drill.DrillCall;
import io.nccl4j.drill.DrillFault;
import io.nccl4j.drill.DrillTable;
import io.nccl4j.drill.Outcome;
import io.nccl4j.schedule.Layout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * The hang drill of the reference backend: every collective of three ranks in which rank 2 is
 * missing, late, calls another operation, dies or is stopped ends with the correct error, ranks,
 * operation and number, or with the correct values.
 */
@Tag("slow")
class HangDrillTest {
  private static final CommunicatorConfig PATIENT =
      CommunicatorConfig.defaults().withTimeout(Duration.ofSeconds(60));
  // A process that does not answer within a quarter of it counts as missing, too.
  private static final Duration TIMEOUT = Duration.ofSeconds(14);
  private static final Duration LIMIT = Duration.ofSeconds(40);

  /** The delay that a busy machine may add to a deadline; far less than the patient timeout. */
  private static final long SLACK_MILLIS = 20_000;

  private static final List<DrillFault> ANYWHERE =
      List.of(
          DrillFault.MISSING,
          DrillFault.LATE,
          DrillFault.OTHER_OPERATION,
          DrillFault.OTHER_COUNT,
          DrillFault.OTHER_TYPE);

  // Each link of each communicator has four slices of shared memory.
  private static final ReferenceOptions OPTIONS =
      ReferenceOptions.defaults().withLayout(Layout.defaults().withSliceBytes(4096));

  @Test
  void ranksOfOneProcess_endEveryCell() throws Exception {
    List<DrillFault> faults = new ArrayList<>(ANYWHERE);
    faults.add(DrillFault.DEAD);
    DrillTable table = new DrillTable("reference in process");
    addAll(Drill.run(ReferenceBackend.open(3, OPTIONS), cells(faults)), table);
    for (Operation operation : DrillCall.collectives()) {
      table.addImpossible(
          operation, DrillFault.STOPPED, "a process that is stopped stops all its ranks");
    }
    table.finish(8 * 7);
  }

  @ParameterizedTest
  @EnumSource(Transport.class)
  void ranksOfSeveralProcesses_endEveryCell(Transport links) throws Exception {
    DrillTable table = new DrillTable("reference " + name(links));
    Backend backend = ReferenceBackend.openAsProcesses(3, 3, OPTIONS.withTransport(links));
    // Both parts wait for the timeout at the same time.
    FutureTask<List<Drill.CellResult>> drill =
        new FutureTask<>(() -> Drill.run(backend, cells(ANYWHERE)));
    Thread.ofPlatform().daemon().name("drill").start(drill);
    killAndStop(links, table);
    addAll(drill.get(120, TimeUnit.SECONDS), table);
    table.finish(8 * 7);
  }

  private static String name(Transport links) {
    return links == Transport.TCP ? "over TCP" : "over shared memory";
  }

  private static List<Drill.Cell> cells(List<DrillFault> faults) {
    List<Drill.Cell> cells = new ArrayList<>();
    for (Operation operation : DrillCall.collectives()) {
      for (DrillFault fault : faults) {
        CommunicatorConfig config =
            fault == DrillFault.MISSING ? PATIENT.withTimeout(TIMEOUT) : PATIENT;
        cells.add(new Drill.Cell(operation, fault, config, true, LIMIT));
      }
    }
    return cells;
  }

  private static void addAll(List<Drill.CellResult> results, DrillTable table) {
    for (Drill.CellResult result : results) {
      add(table, result.cell().operation(), result.cell().fault(), result.outcomes(), "");
    }
  }

  /** Three processes with a communicator for each cell; rank 2 is stopped, then killed. */
  private static void killAndStop(Transport links, DrillTable table) {
    try (RankProcesses processes = new RankProcesses(links, TIMEOUT)) {
      processes.start("drill", "2", 1, 1, 1);
      processes.awaitAll(3, "is ready");
      processes.signal(2, "STOP");
      addAll(processes, DrillFault.STOPPED, 0, table);
      long killed = System.currentTimeMillis();
      processes.signal(2, "KILL");
      addAll(processes, DrillFault.DEAD, killed, table);
    }
  }

  private static void addAll(
      RankProcesses processes, DrillFault fault, long since, DrillTable table) {
    for (Operation operation : DrillCall.collectives()) {
      List<Outcome> outcomes = new ArrayList<>();
      for (int rank = 0; rank < 2; rank++) {
        outcomes.add(DrillRank.outcome(processes, rank, operation, fault, since));
      }
      add(table, operation, fault, outcomes, "processes");
    }
  }

  private static void add(
      DrillTable table,
      Operation operation,
      DrillFault fault,
      List<Outcome> outcomes,
      String note) {
    boolean waits = fault == DrillFault.MISSING || fault == DrillFault.STOPPED;
    long slowest = outcomes.stream().mapToLong(Outcome::millis).max().orElse(0);
    for (int rank = 0; rank < outcomes.size(); rank++) {
      table.add(
          operation,
          fault,
          rank,
          outcomes.get(rank),
          note,
          expectedOutcome(operation, fault),
          // The rank that called last is notified of the timeout of the other one.
          waits && outcomes.get(rank).millis() == slowest ? TIMEOUT.toMillis() : 0,
          (waits ? TIMEOUT.toMillis() : 0) + SLACK_MILLIS);
    }
  }

  private static Predicate<String> expectedOutcome(Operation operation, DrillFault fault) {
    String own = operation.method();
    return switch (fault) {
      case LATE -> Outcome.RIGHT::equals;
      case MISSING, STOPPED -> Outcome.text("NcclTimeoutException", "[]", "[2]", own, 2)::equals;
      case DEAD -> Outcome.text("NcclRemoteException", "[2]", "[]", own, 2)::equals;
      case OTHER_COUNT, OTHER_TYPE -> differs(own)::equals;
      // The operation is that of the rank that has found the mismatch.
      case OTHER_OPERATION ->
          text ->
              text.equals(differs(own)) || text.equals(differs(Drill.other(operation).method()));
    };
  }

  private static String differs(String operation) {
    return Outcome.text("NcclInvalidUsageException", "[]", "[]", operation, 2);
  }
}
