package io.nccl4j.tools.evidence;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.rendezvous.LaunchEnvironment;
import io.nccl4j.rendezvous.Rendezvous;
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

  private static final Duration RENDEZVOUS_TIMEOUT = Duration.ofSeconds(30);

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

  @Option(names = "--size", description = "the number of ranks; with a launcher, the launcher's")
  int size = 1;

  @Option(
      names = "--meet",
      description = "a directory that all ranks share, or the file for the id")
  Path meet;

  @Option(names = "--suite", description = "a test class")
  String suite;

  @Option(names = "--topics", split = ",", description = "nested classes of the suite")
  List<String> topics = List.of();

  @Option(names = "--binaries", description = "the folder of nccl-tests")
  Path binaries;

  @Option(names = "--quick")
  boolean quick;

  /** The rank of this process, if it is one of several. */
  final LaunchEnvironment launch = LaunchEnvironment.current();

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
    if (child.severalProcesses()) {
      child.size = child.launch.size();
    }
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
      case "nccl-tests" -> NcclTests::run;
      default -> throw new IllegalArgumentException("unknown program " + name);
    };
  }

  /** Returns whether each rank is a process. */
  boolean severalProcesses() {
    return launch.size() > 1;
  }

  /** Creates a communicator with one rank in each process, each of which calls this. */
  Communicator communicator(Backend backend, CommunicatorConfig config) {
    try (Rendezvous rendezvous = launch.rendezvous(RENDEZVOUS_TIMEOUT)) {
      return rendezvous.newCommunicator(backend, config);
    }
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
