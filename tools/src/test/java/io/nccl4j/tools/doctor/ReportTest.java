package io.nccl4j.tools.doctor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.browser.HeadlessBrowser;
import io.nccl4j.fixtures.browser.HeadlessBrowser.Visit;
import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.JsonTree;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests of the verdict, the exit status, and the text and JSON reports. */
class ReportTest {
  @TempDir Path root;

  private Fixture machine;

  @BeforeEach
  void createHealthyMachine() {
    machine = new Fixture(root);
  }

  private Report report(Check... checks) {
    return CheckRunner.of(machine.state(), List.of(checks));
  }

  private String text(Report report) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    TextReport.write(report, new PrintStream(bytes, true, StandardCharsets.UTF_8));
    return bytes.toString(StandardCharsets.UTF_8);
  }

  @Test
  void statusIsZeroOnlyWithoutErrors() {
    assertEquals(
        Commands.OK,
        report(
                new Check("all-reduce", CollectiveCheck::findings),
                new Check("network", NetworkCheck::findings))
            .status());
    assertEquals("a collective can run on NCCL", report().verdict());
    machine.set("NCCL_SOCKET_IFNAME", "ib");
    Report oneError =
        report(
            new Check("all-reduce", CollectiveCheck::findings),
            new Check("network", NetworkCheck::findings));
    assertEquals(Commands.FAILED, oneError.status());
    assertEquals(
        "one rank can run, but 1 error prevents a collective of several ranks", oneError.verdict());
  }

  @Test
  void launchNamesLauncherAndRank() {
    assertEquals("no launcher, one rank", report().found().get("launch"));
    machine.set("OMPI_COMM_WORLD_RANK", "2").set("OMPI_COMM_WORLD_SIZE", "4");
    machine.set("OMPI_COMM_WORLD_LOCAL_RANK", "0").set("OMPI_COMM_WORLD_LOCAL_SIZE", "2");
    machine.set("NCCL4J_RENDEZVOUS", "file:/shared/run");
    assertEquals(
        "Open MPI: rank 2 of 4, local rank 0, id from files in /shared/run",
        report().found().get("launch"));
  }

  @Test
  void warningsDoNotChangeTheStatus() {
    machine.set("NCCL_DEBUG", "FOO");
    assertEquals(Commands.OK, report(new Check("values", ValuesCheck::findings)).status());
  }

  @Test
  void verdictWithoutGpuNamesReferenceBackend() {
    machine.withoutGpu(0, "cudaErrorInsufficientDriver");
    assertEquals(
        "no collective can run on NCCL here; the reference backend works: Backend.reference(n)",
        report().verdict());
    assertEquals(Commands.FAILED, report().status());
    machine.reference = Optional.of("element 3 of rank 0 is 5.0");
    assertEquals(
        "no collective can run on NCCL here; the reference backend fails too", report().verdict());
  }

  @Test
  void wrongSumIsAnError() {
    machine.sums = Optional.empty();
    machine.failure = Optional.of("the sum is wrong: element 3 is 0.0, not 4.0");
    Finding finding = machine.onlyFinding(CollectiveCheck::findings);
    assertEquals(Severity.ERROR, finding.severity());
    assertTrue(finding.title().endsWith("the sum is wrong: element 3 is 0.0, not 4.0"));
    assertEquals(Commands.FAILED, report().status());
  }

  @Test
  void correctSumFollowedByHangIsAnError() {
    machine.end =
        new ProbeResult.ProcessEnd(
            ProbeResult.ProcessEnd.Kind.TIMED_OUT, "did not finish within 60 s");
    machine.lastStep = "closing the communicator";
    Finding finding = machine.onlyFinding(CollectiveCheck::findings);
    assertEquals(
        "the all-reduce on NCCL did not finish within 60 s; it hung while closing the communicator",
        finding.title());
    assertEquals(Commands.FAILED, report().status());
  }

  @Test
  void crashShowsProcessOutput() {
    machine.sums = Optional.empty();
    machine.lastStep = "loading libcudart";
    machine.end =
        new ProbeResult.ProcessEnd(ProbeResult.ProcessEnd.Kind.CRASHED, "was killed by signal 6");
    machine.output.add("# Problematic frame:");
    Finding finding = machine.onlyFinding(CollectiveCheck::findings);
    assertEquals(
        "the all-reduce process was killed by signal 6 while loading libcudart", finding.title());
    assertEquals(List.of("# Problematic frame:"), finding.details());
  }

  @Test
  void otherChecksRunIfProbeCannotStart() {
    MachineState state = machine.state();
    MachineState without =
        new MachineState(
            state.machine(),
            ProbeResult.notStarted(new IOException("no space left")),
            Map.of(),
            Optional.empty(),
            Optional.empty(),
            state.launch(),
            Optional.empty(),
            Optional.empty());
    Report report = CheckRunner.of(without, CheckRunner.CHECKS);
    assertEquals(Commands.FAILED, report.status());
    assertTrue(
        report.findings().stream()
            .anyMatch(
                each ->
                    each.finding()
                        .title()
                        .equals(
                            "the all-reduce process could not be started:"
                                + " java.io.IOException: no space left before its first step")),
        report.toString());
  }

  @Test
  void findingsAreSortedAndHaveThreeLines() {
    machine.set("NCCL_DEBUG", "FOO").set("NCCL_SOCKET_IFNAME", "ib");
    List<String> lines =
        text(report(
                new Check("values", ValuesCheck::findings),
                new Check("network", NetworkCheck::findings)))
            .lines()
            .toList();
    int error = lines.indexOf("error      NCCL_SOCKET_IFNAME=ib selects no usable interface");
    int warning = lines.indexOf("warning    NCCL_DEBUG=FOO is not a valid value");
    assertTrue(0 < error && error < warning, lines.toString());
    for (int at : new int[] {error, warning}) {
      assertTrue(lines.get(at + 1).startsWith("  means    "), lines.get(at + 1));
      assertTrue(lines.get(at + 2).startsWith("  do       "), lines.get(at + 2));
      assertEquals("", lines.get(at + 3));
    }
    assertTrue(lines.getLast().startsWith("verdict    one rank can run, but 1 error"));
  }

  @Test
  void jsonMatchesTextWithoutEnvironment() throws IOException {
    machine.set("NCCL_DEBUG", "FOO").set("PASSWORD", "hunter2");
    Report report =
        report(
            new Check("values", ValuesCheck::findings),
            new Check("network", NetworkCheck::findings));
    String text = JsonReport.of(report);
    Map<?, ?> json = (Map<?, ?>) JsonTree.parse(text);
    assertEquals(true, json.get("usable"));
    assertEquals(0L, json.get("exit_status"));
    assertEquals(report.verdict(), json.get("verdict"));
    assertEquals(report.found(), json.get("found"));
    assertEquals(List.of("values", "network"), json.get("checks"));
    Object finding = ((List<?>) json.get("findings")).getFirst();
    assertEquals(
        Map.of(
            "severity",
            "warning",
            "check",
            "values",
            "finding",
            "NCCL_DEBUG=FOO is not a valid value",
            "meaning",
            "NCCL behaves as if it were not set",
            "remedy",
            "use one of ABORT, INFO, NONE, TRACE, VERSION, WARN",
            "details",
            List.of()),
        finding);
    assertFalse(text.contains("hunter2"));
  }

  @Test
  @Tag("slow")
  void pageMatchesTextOnAPhone() throws IOException, InterruptedException {
    machine.set("NCCL_SOCKET_IFNAME", "ib").set("PASSWORD", "hunter2");
    Report report = report(new Check("network", NetworkCheck::findings));
    Path page = Files.writeString(root.resolve("page.html"), HtmlPage.of(report));
    Visit visit =
        HeadlessBrowser.in(root)
            .open(
                page,
                "",
                HeadlessBrowser.PHONE,
                """
                return [
                  document.documentElement.scrollWidth <= innerWidth ? "fits" : "too wide",
                  document.querySelector(".warning").textContent,
                  ...[...document.querySelectorAll("tbody tr")].map(row => [...row.cells].map(cell => cell.textContent).join(" | "))
                ].join("\\n");
                """);
    assertEquals(List.of(), visit.errors());
    assertTrue(
        visit
            .answer()
            .startsWith(
                "fits\n%s\nerror | NCCL_SOCKET_IFNAME=ib selects no usable interface\n"
                    .formatted(report.verdict())),
        visit.answer());
    Finding finding = report.findings().getFirst().finding();
    assertTrue(
        visit
            .answer()
            .contains("\nMeans: %s\nDo: %s\n".formatted(finding.meaning(), finding.remedy())),
        visit.answer());
    report
        .found()
        .forEach(
            (name, value) ->
                assertTrue(visit.answer().contains("\n" + name + " | " + value), visit.answer()));
    assertFalse(visit.answer().contains("hunter2"));
  }

  @Test
  void otherChecksRunIfOneFails() {
    Check broken =
        new Check(
            "broken",
            state -> {
              throw new IllegalStateException("broken");
            });
    machine.set("NCCL_DEBUG", "FOO");
    List<Report.CheckFinding> findings =
        report(broken, new Check("values", ValuesCheck::findings)).findings();
    assertEquals("values", findings.get(0).check());
    assertEquals("broken", findings.get(1).check());
    assertEquals(Severity.UNCHECKED, findings.get(1).finding().severity());
    assertTrue(findings.get(1).finding().meaning().contains("broken"));
  }

  @Test
  void logSkipsIncompleteLastLine() throws IOException {
    ProgressLog log = new ProgressLog(root.resolve("log"));
    assertEquals(List.of(), log.entries(ProgressLog.STEP));
    log.write(ProgressLog.STEP, "one\ttwo\n\\three");
    log.write(ProgressLog.VERSION, "nccl", "2.30.7");
    java.nio.file.Files.writeString(
        log.file(), "step\tcut o", java.nio.file.StandardOpenOption.APPEND);
    assertEquals(List.of(List.of("one\ttwo\n\\three")), log.entries(ProgressLog.STEP));
    assertEquals(Optional.of(List.of("nccl", "2.30.7")), log.last(ProgressLog.VERSION));
  }

  @Test
  void referenceAllReduceSucceeds() {
    assertEquals(Optional.empty(), ReferenceProbe.run(Duration.ofSeconds(60)));
  }

  @Test
  void badArgumentsReturnStatusTwo() {
    for (String args : List.of("--unknown", "--timeout 0", "--timeout x")) {
      ByteArrayOutputStream printed = new ByteArrayOutputStream();
      ByteArrayOutputStream complaint = new ByteArrayOutputStream();
      PrintStream out = new PrintStream(printed, true, StandardCharsets.UTF_8);
      PrintStream err = new PrintStream(complaint, true, StandardCharsets.UTF_8);
      assertEquals(Commands.BAD_ARGUMENTS, Doctor.run(out, err, args.split(" ", -1)));
      assertEquals(0, printed.size());
      String message = complaint.toString(StandardCharsets.UTF_8);
      assertEquals(1, message.lines().count(), message);
    }
  }
}
