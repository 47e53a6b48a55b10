package io.nccl4j.tools.evidence;

import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * The program of {@code scripts/lib/emulated-evidence}: runs the suites on NVIDIA's NCCL over the
 * emulated CUDA of a checkout, its working directory, and writes a page. Exits with 1 if anything
 * failed.
 */
public final class EmulatedCommand {
  private static final Path CHECKOUT = Path.of("").toAbsolutePath();
  private static final String PLANNER_TEST = "PlannerTest";
  private static final Path PLANNER_XML =
      CHECKOUT.resolve(
          "target/surefire-reports/emulated-nccl/TEST-io.nccl4j.schedule." + PLANNER_TEST + ".xml");

  private final PrintStream out = System.out;
  private final Map<String, String> environment = System.getenv();
  private final List<EmulatedResult> results = new ArrayList<>();

  /** Runs everything and exits. */
  public static void main(String[] args) throws IOException, ClassNotFoundException {
    System.exit(new EmulatedCommand().run() ? 0 : 1);
  }

  private EmulatedCommand() {}

  private boolean run() throws IOException, ClassNotFoundException {
    Path work = Files.createTempDirectory("nccl4j-evidence");
    Path log = CHECKOUT.resolve("target/emulated-evidence.log");
    Files.deleteIfExists(log);
    try (StepRunner runner = new StepRunner(work, log)) {
      String date = EvidenceCommand.date();
      Outcome device = runner.run(new EvidencePlan(work, true, environment).first(), out);
      Machine machine = Machine.of(device);
      if (!machine.usable()) {
        return false;
      }
      if (machine.libraries() != Libraries.EMULATED_CUDA) {
        out.println("emulated-evidence: NCCL4J_EMULATED_NCCL is not NVIDIA's NCCL on this CUDA");
        return false;
      }
      runAll(runner, work);
      Run.RunSource source =
          new Run.RunSource(date, environment.get("NCCL4J_BUILD"), Machine.versions(device));
      Path page = CHECKOUT.resolve("docs/evidence/emulated/" + machine.nccl() + ".md");
      Files.createDirectories(page.getParent());
      Files.writeString(
          page,
          redaction(work).apply(EmulatedPage.of(source, facts(device), List.copyOf(results))));
      out.println(CHECKOUT.relativize(page));
      return results.stream().noneMatch(result -> result.outcome().status().bad());
    } finally {
      out.println("the output of all programs: " + CHECKOUT.relativize(log));
      EvidenceCommand.clear(work, out);
    }
  }

  private void runAll(StepRunner runner, Path work) throws IOException, ClassNotFoundException {
    EmulatedPlan plan = new EmulatedPlan(work, environment);
    for (Step step : plan.predictions()) {
      results.add(EmulatedResult.ofBits(runner.run(step, out)));
    }
    results.add(EmulatedResult.ofBits(runner.run(plan.collectives(2), out)));
    for (Step step : plan.contracts()) {
      results.add(EmulatedResult.ofContract(runner.run(step, out)));
    }
    // A report of an earlier run must not be counted.
    Files.deleteIfExists(PLANNER_XML);
    Step planner = EmulatedPlan.test("Planner comparisons", CHECKOUT, PLANNER_TEST);
    results.add(EmulatedResult.ofPlanner(runner.run(planner, out), PLANNER_XML));
    Path bundle = Path.of(environment.get("NCCL4J_HOME"));
    for (int devices = 1; devices <= 2; devices++) {
      Step step = plan.evidence(bundle, devices);
      Path json = work.resolve(step.name()).resolve("evidence.json");
      results.add(EmulatedResult.ofEvidence(runner.run(step, out), json));
    }
  }

  /** Returns what the device step reported, and NCCL's variables. */
  private Map<String, String> facts(Outcome device) {
    Map<String, String> facts = new TreeMap<>(device.report().facts());
    environment.forEach(
        (name, value) -> {
          if (name.startsWith(EmulatedPage.VARIABLE)) {
            facts.put(name, value);
          }
        });
    return facts;
  }

  private Redaction redaction(Path work) {
    return new Redaction()
        .folder(work, "$WORK")
        .folder(CHECKOUT, "$PWD")
        .folder(Path.of(environment.get("NCCL4J_NCCL_LIBRARY")), "$NCCL4J_EMULATED_NCCL")
        .folder(Path.of(System.getProperty("user.home")), "~")
        .word(DeviceReport.hostName(), "$HOSTNAME");
  }
}
