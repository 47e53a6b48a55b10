package io.nccl4j.tools;

import io.nccl4j.Backend;
import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.doctor.Doctor;
import io.nccl4j.tools.evidence.EvidenceCommand;
import io.nccl4j.tools.explain.Explain;
import io.nccl4j.tools.flight.Flight;
import io.nccl4j.tools.perf.Perf;
import io.nccl4j.tools.perf.report.PerfReport;
import io.nccl4j.tools.perf.sweep.Sweep;
import io.nccl4j.tools.ras.Ras;
import io.nccl4j.tools.simulate.Simulate;
import io.nccl4j.tools.trace.Trace;
import java.io.IOException;
import java.util.Arrays;

/** All tools as one command: {@code nccl4j TOOL [arguments]}. */
public final class Nccl4j {
  private static final String USAGE =
      """
      usage: nccl4j TOOL [arguments]; nccl4j TOOL --help; nccl4j --version

        perf      measures the bandwidth of a collective, with the flags and lines of nccl-tests
        sweep     measures every algorithm with every protocol, and what the automatic choice costs
        report    compares earlier runs of perf
        doctor    checks whether collectives can run here, and if not, why
        ras       shows which ranks of a running NCCL job are late or lost
        flight    compares the last operations of the ranks of a job that hangs or has crashed
        trace     merges the flight recordings of several ranks into one timeline
        explain   shows which rank sends what to which, step by step
        simulate  predicts the time of an all-reduce on a cluster
        evidence  tests and measures nccl4j on the GPUs of this machine
      """;

  private Nccl4j() {}

  /**
   * Runs a tool, which exits with its status.
   *
   * @param args the name of the tool, followed by its arguments
   * @throws IOException if the tool cannot read this process's own command line
   */
  public static void main(String[] args) throws IOException {
    String tool = args.length == 0 ? "" : args[0];
    String[] rest = Arrays.copyOfRange(args, Math.min(1, args.length), args.length);
    switch (tool) {
      case "perf" -> Perf.main(rest);
      case "sweep" -> Sweep.main(rest);
      case "report" -> PerfReport.main(rest);
      case "doctor" -> Doctor.main(rest);
      case "ras" -> Ras.main(rest);
      case "flight" -> Flight.main(rest);
      case "trace" -> Trace.main(rest);
      case "explain" -> Explain.main(rest);
      case "simulate" -> Simulate.main(rest);
      case "evidence" -> EvidenceCommand.main(rest);
      case "--version" -> System.out.println("nccl4j " + Backend.libraryVersion());
      case "-h", "--help" -> System.out.print(USAGE);
      default -> {
        System.err.print(tool.isEmpty() ? "" : "nccl4j: unknown tool '" + tool + "'\n");
        System.err.print(USAGE);
        System.exit(Commands.BAD_ARGUMENTS);
      }
    }
  }
}
