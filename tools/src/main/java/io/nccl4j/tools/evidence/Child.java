package io.nccl4j.tools.evidence;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import picocli.CommandLine;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/**
 * The main class of every step: runs the program that its first argument names and writes a {@link
 * Report}. Its exit status is 0 unless the program failed.
 */
public final class Child {
  /** The time after its deadline at which the process exits, if it has not been killed. */
  private static final Duration ORPHAN_TIMEOUT = Duration.ofSeconds(15);

  /** The program of a step; it fills the child's report. */
  interface Program {
    void run(Child child) throws Exception;
  }

  /** Thrown by a program that cannot run on this machine. */
  static final class NotPossible extends Exception {
    private static final long serialVersionUID = 1;

    NotPossible(String reason) {
      super(reason);
    }
  }

  @Parameters(index = "0")
  String program;

  @Option(names = "--report", required = true)
  Path report;

  @Option(names = "--deadline", required = true)
  int deadline;

  @Option(names = "--rank")
  int rank;

  @Option(names = "--size", description = "ranks; with --layout LAUNCHED those of this process")
  int size = 1;

  @Option(names = "--meet", description = "rendezvous directory, or the file for the id")
  Path meet;

  @Option(names = "--suite", description = "a test class")
  String suite;

  @Option(names = "--topics", split = ",", description = "nested classes of the suite")
  List<String> topics = List.of();

  @Option(names = "--device")
  int device;

  @Option(names = "--layout", description = "the layout of the ranks of the bandwidth command")
  Bandwidth.Layout layout = Bandwidth.Layout.ONE_PROCESS;

  @Option(names = "--backend", description = "the backend of the bandwidth command")
  String backend = "nccl";

  @Option(names = "--page", description = "the file for the charts")
  Path page;

  @Option(names = "--binaries")
  Path binaries;

  @Option(names = "--quick")
  boolean quick;

  private final long start = System.nanoTime();
  private final Map<String, String> facts = new LinkedHashMap<>();
  private final List<Table> tables = new ArrayList<>();
  private final List<String> notes = new ArrayList<>();
  private Report.Verdict verdict = Report.Verdict.PASSED;
  private String summary = "";

  Child() {}

  /** Runs one program and exits. */
  public static void main(String[] args) {
    Child child = new Child();
    new CommandLine(child).parseArgs(args);
    child.exitWhenOrphaned();
    int status = child.run();
    // halt() ends the process even if a failed program left threads running.
    Runtime.getRuntime().halt(status);
  }

  private void exitWhenOrphaned() {
    Duration longest = Duration.ofSeconds(deadline).plus(ORPHAN_TIMEOUT);
    Thread.ofPlatform()
        .daemon()
        .name("evidence-deadline")
        .start(
            () -> {
              try {
                Thread.sleep(longest);
              } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
              }
              Runtime.getRuntime().halt(1);
            });
  }

  private int run() {
    try {
      programOf(program).run(this);
    } catch (NotPossible e) {
      end(Report.Verdict.NOT_POSSIBLE, e.getMessage());
    } catch (Exception | Error e) {
      e.printStackTrace();
      end(Report.Verdict.FAILED, e.getClass().getSimpleName() + ": " + e.getMessage());
    }
    try {
      write(verdict, summary);
    } catch (IOException e) {
      e.printStackTrace();
      return 1;
    }
    return verdict == Report.Verdict.FAILED ? 1 : 0;
  }

  private static Program programOf(String name) {
    return switch (name) {
      case "device" -> DeviceReport::run;
      case "cross-check" -> CrossCheck::run;
      case "prediction" -> Prediction::run;
      case "contract" -> ContractSuite::run;
      case "contract-topics" -> ContractTopics::run;
      case "interop" -> Interop::run;
      case "bandwidth" -> Bandwidth::run;
      case "peer-bandwidth" -> PeerBandwidth::run;
      case "sweep" -> SweepCharts::run;
      case "latency" -> CallLatency::run;
      case "nccl-tests" -> NcclTests::run;
      default -> throw new IllegalArgumentException("unknown program " + name);
    };
  }

  /** Returns how long this process has been running. */
  Duration elapsed() {
    return Duration.ofNanos(System.nanoTime() - start);
  }

  /**
   * Returns the time left until nine tenths of the deadline; the rest is for the end of the
   * program.
   */
  Duration left() {
    return Duration.ofSeconds(deadline).multipliedBy(9).dividedBy(10).minus(elapsed());
  }

  /**
   * Returns the limit of a part of the program: a tenth of the deadline, which is longer on slow
   * machines.
   */
  Duration limit(Duration least) {
    Duration tenth = Duration.ofSeconds(deadline).dividedBy(10);
    return tenth.compareTo(least) > 0 ? tenth : least;
  }

  void fact(String name, String value) {
    facts.put(name, value);
  }

  /** Adds a table, or replaces the one with the same title. */
  void table(Table table) {
    tables.removeIf(earlier -> earlier.title().equals(table.title()));
    tables.add(table);
  }

  void note(String note) {
    notes.add(note);
  }

  /**
   * Sets the result: passed if something was measured or compared, and all of it was right.
   *
   * @param done how much was measured or compared
   * @param right whether nothing was wrong
   * @param newSummary the result in one line
   */
  void end(long done, boolean right, String newSummary) {
    boolean passed = done > 0 && right;
    end(
        passed ? Report.Verdict.PASSED : Report.Verdict.FAILED,
        done > 0 ? newSummary : newSummary + "; nothing was measured or compared");
  }

  private void end(Report.Verdict newVerdict, String newSummary) {
    verdict = newVerdict;
    summary = newSummary;
  }

  /** Writes the report so far, which counts if the process is killed. */
  void saveUnfinished(String soFar) throws IOException {
    write(Report.Verdict.UNFINISHED, soFar);
  }

  private void write(Report.Verdict current, String text) throws IOException {
    new Report(current, text, facts, tables, notes).write(report);
  }
}
