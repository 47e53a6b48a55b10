package io.nccl4j.tools.doctor;

import io.nccl4j.internal.ffm.NativeLibrary;
import io.nccl4j.rendezvous.LaunchEnvironment;
import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.OutputFile;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** The {@code doctor} command. */
public final class Doctor {
  // The all-reduce on NCCL waits once. That on the reference may wait for an operation, then again
  // for a thread that does not end.
  private static final int WAITS = 3;
  // Time for everything else: python3 may take 15 s for each library, and ending the process with
  // the all-reduce 10 s.
  private static final int OTHER_SECONDS = 60;

  private Doctor() {}

  /** Runs the command and exits with its status. */
  public static void main(String[] args) {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    int status = run(out, System.err, args);
    out.flush();
    // halt() ends the process even if a thread hangs in a file system or a rank.
    Runtime.getRuntime().halt(status);
  }

  /** Runs the command and returns its exit status. */
  static int run(PrintStream out, PrintStream err, String... args) {
    Flags flags = new Flags();
    return Commands.of(flags, () -> examine(flags, out, err), out, err).execute(args);
  }

  private static int examine(Flags flags, PrintStream out, PrintStream err) throws IOException {
    Duration timeout = Duration.ofSeconds(flags.timeout);
    Thread watchdog = watchdog(timeout.multipliedBy(WAITS).plusSeconds(OTHER_SECONDS), err);
    if (Commands.onTerminal()) {
      err.printf("doctor: an all-reduce on each backend, at most %d s each ...%n", flags.timeout);
    }
    try {
      List<Check> checks = new ArrayList<>(CheckRunner.CHECKS);
      if (flags.flight != null) {
        checks.add(new Check("operations", state -> OperationsCheck.findings(flags.flight)));
      }
      Report report = CheckRunner.of(gather(timeout), checks);
      if (flags.json) {
        out.println(JsonReport.of(report));
      } else {
        TextReport.write(report, out);
      }
      if (flags.html != null) {
        OutputFile.write(flags.html, HtmlPage.of(report));
      }
      return report.status();
    } finally {
      watchdog.interrupt();
    }
  }

  /** Ends the process after a time limit: even reading a file can hang on a network file system. */
  private static Thread watchdog(Duration limit, PrintStream err) {
    return Thread.ofPlatform()
        .daemon()
        .name("doctor-watchdog")
        .start(
            () -> {
              try {
                Thread.sleep(limit);
              } catch (InterruptedException e) {
                return;
              }
              err.println("doctor: gave up after " + limit.toSeconds() + " s; something hangs");
              Runtime.getRuntime().halt(Commands.FAILED);
            });
  }

  private static MachineState gather(Duration timeout) throws IOException {
    Machine machine = Machine.current();
    ProbeResult probe = probe(machine, timeout);
    Map<NativeLibrary, List<NativeLibrary.Copy>> copies = new HashMap<>();
    for (NativeLibrary library : MachineState.LIBRARIES) {
      copies.put(library, library.copies());
    }
    Optional<LaunchEnvironment> launch = Optional.empty();
    Optional<String> problem = Optional.empty();
    try {
      launch = Optional.of(LaunchEnvironment.from(machine.environment()));
    } catch (IllegalArgumentException e) {
      problem = Optional.of(e.getMessage());
    }
    Optional<LibraryFile> ncclFile = Optional.empty();
    Optional<String> ncclProblem = Optional.empty();
    try {
      ncclFile = ncclFile(probe, copies.get(NativeLibrary.NCCL));
    } catch (IOException e) {
      ncclProblem = Optional.of(e.getMessage());
    }
    return new MachineState(
        machine,
        probe,
        copies,
        ncclFile,
        ncclProblem,
        launch,
        problem,
        ReferenceProbe.run(timeout));
  }

  private static ProbeResult probe(Machine machine, Duration timeout) {
    try {
      return new ProbeProcess(machine.nativeAccess(), timeout).run();
    } catch (IOException e) {
      return ProbeResult.notStarted(e);
    }
  }

  /** Reads the libnccl file that the probe loaded, or would have loaded. */
  private static Optional<LibraryFile> ncclFile(ProbeResult probe, List<NativeLibrary.Copy> copies)
      throws IOException {
    String loaded = probe.versions().get(ProbeResult.NCCL_LIBRARY);
    Optional<Path> file =
        loaded != null
            ? Optional.of(Path.of(loaded))
            : copies.stream()
                .filter(copy -> copy.fault() == null)
                .findFirst()
                .map(NativeLibrary.Copy::path);
    return file.isEmpty() ? Optional.empty() : Optional.of(LibraryFile.read(file.get()));
  }
}
