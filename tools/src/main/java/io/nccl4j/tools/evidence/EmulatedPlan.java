package io.nccl4j.tools.evidence;

import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.IntFunction;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/** The steps that run the suites on NVIDIA's NCCL over the emulated CUDA of the tests. */
final class EmulatedPlan {
  private static final String SUITE = "io.nccl4j.contract.EmulatedNcclContractTest";
  private static final String DEVICES = "NCCL4J_STANDIN_DEVICES";

  /** The suites take minutes, and many times as long on processors that others use. */
  private static final Duration SUITE_DEADLINE = Duration.ofMinutes(45);

  /** Longer than the guaranteed times of all steps on the emulated CUDA. */
  private static final Duration EVIDENCE_DEADLINE = Duration.ofMinutes(60);

  private static final Duration COMPARISON_DEADLINE = Duration.ofMinutes(5);

  private final Path work;
  private final Map<String, String> environment;
  private final ChildCommands children;

  /**
   * Creates a plan.
   *
   * @param work a directory for this run only
   * @param environment the environment variables of all steps, which name the libraries
   */
  EmulatedPlan(Path work, Map<String, String> environment) {
    this.work = work;
    this.environment = environment;
    this.children =
        new ChildCommands(
            work,
            environment.get("NCCL4J_NCCL_LIBRARY"),
            environment.get("NCCL4J_CUDART_LIBRARY"),
            false,
            environment);
  }

  /** Returns the steps that run the contract suite. */
  List<Step> contracts() throws ClassNotFoundException {
    String topics = String.join(",", ContractSuite.topics(SUITE).keySet());
    List<String> suite = List.of("contract", "--suite", SUITE, "--topics", topics);
    List<String> threeRanks = Stream.concat(suite.stream(), Stream.of("--size", "3")).toList();
    Map<String, String> sockets = Map.of("NCCL_NET", "Socket", "NCCL_SOCKET_IFNAME", "lo");
    return List.of(
        step(
            "contract-one-process",
            "Contract suite, 3 ranks in one process",
            SUITE_DEADLINE,
            process("contract-one-process", devices(3), threeRanks)),
        step(
            "contract-processes",
            "Contract suite, 2 ranks in 2 processes on one host",
            SUITE_DEADLINE,
            ranks("contract-processes", 2, _ -> devices(2), suite)),
        step(
            "contract-hosts",
            "Contract suite, 2 ranks in 2 processes on two hosts, through sockets",
            SUITE_DEADLINE,
            ranks(
                "contract-hosts",
                2,
                rank -> {
                  Map<String, String> variables = devices(2);
                  variables.putAll(sockets);
                  variables.put("NCCL_HOSTID", "host-" + rank);
                  return variables;
                },
                suite)));
  }

  /** Returns the steps that compare results of each algorithm and protocol bit for bit. */
  List<Step> predictions() {
    return Stream.of("Ring", "Tree")
        .flatMap(
            algorithm ->
                Stream.of("LL", "LL128", "Simple")
                    .map(protocol -> prediction(4, algorithm, protocol)))
        .toList();
  }

  Step prediction(int ranks, String algorithm, String protocol) {
    String name = ("bits-" + algorithm + "-" + protocol).toLowerCase(Locale.ROOT);
    Map<String, String> variables = devices(ranks);
    variables.putAll(Prediction.variables(algorithm, protocol, work.resolve(name + ".nccl")));
    return step(
        name,
        "All-reduces of " + ranks + " ranks, " + algorithm + " with " + protocol,
        COMPARISON_DEADLINE,
        process(name, variables, List.of("prediction", "--size", "" + ranks)));
  }

  /** Returns the step that compares all collectives of some processes bit for bit. */
  Step collectives(int processes) {
    return step(
        "bits-collectives",
        "All collectives of %1$s ranks in %1$s processes".formatted(processes),
        COMPARISON_DEADLINE,
        ranks(
            "bits-collectives",
            processes,
            _ -> devices(processes),
            List.of("cross-check", "--quick")));
  }

  /** Returns the step that runs a test class of the library with Maven. */
  static Step test(String title, Path checkout, String test) {
    List<String> words =
        List.of(
            "mvn",
            "--batch-mode",
            "--quiet",
            "--file",
            checkout.resolve("parent/pom.xml").toString(),
            "--projects",
            "..",
            "--also-make",
            "test",
            "-Pall",
            "-Dtest=" + test,
            "-Dsurefire.failIfNoSpecifiedTests=false",
            "-Dspotless.check.skip=true");
    return step(test, title, SUITE_DEADLINE, new Step.Command("Maven", words, Map.of(), null));
  }

  /** Returns the step that runs the evidence of a bundle, into a folder of its own. */
  Step evidence(Path bundle, int devices) {
    String name = "evidence-" + devices;
    List<String> words =
        List.of(
            bundle.resolve("scripts/nccl4j").toString(),
            "evidence",
            "--quick",
            work.resolve(name).toString());
    return step(
        name,
        "`scripts/nccl4j evidence --quick`, " + (devices == 1 ? "1 device" : devices + " devices"),
        EVIDENCE_DEADLINE,
        new Step.Command("bundle", words, devices(devices), null));
  }

  private Map<String, String> devices(int count) {
    Map<String, String> variables = new LinkedHashMap<>(environment);
    variables.put(DEVICES, "" + count);
    return variables;
  }

  private static Step step(String name, String title, Duration deadline, Step.Command... commands) {
    return Step.of(name, title, deadline, commands);
  }

  private Step.Command process(String step, Map<String, String> variables, List<String> arguments) {
    return children.process(step, "process", variables, arguments);
  }

  private Step.Command[] ranks(
      String step, int size, IntFunction<Map<String, String>> variables, List<String> program) {
    return IntStream.range(0, size)
        .mapToObj(rank -> children.rank(step, rank, size, rank, variables.apply(rank), program))
        .toArray(Step.Command[]::new);
  }
}
