package io.nccl4j.tools.simulate;

import io.nccl4j.tools.cli.Count;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;

/** Prints a scenario as tables. */
final class TextReport {
  private final Scenario scenario;
  private final Model model;
  private final PrintStream out;

  private TextReport(Scenario scenario, PrintStream out) {
    this.scenario = scenario;
    this.model = scenario.model();
    this.out = out;
  }

  /** Prints a scenario. */
  static void write(Scenario scenario, PrintStream out) {
    TextReport report = new TextReport(scenario, out);
    out.println(cluster(scenario));
    out.println(network(scenario));
    if (scenario.size() != null) {
      report.oneSize(scenario.size());
    } else {
      report.sizes();
    }
    report.crossovers();
    if (scenario.sweep() != null) {
      report.ranks();
    }
    report.notes();
  }

  /** Describes the operation and the ranks, in one line. */
  static String cluster(Scenario scenario) {
    Cluster cluster = scenario.model().cluster();
    return "all_reduce on %s, %d per node (%s), %s, float32"
        .formatted(
            Count.of(cluster.ranks(), "rank"),
            cluster.ranksPerNode(),
            Count.of(cluster.nodes(), "node"),
            Count.of(scenario.channels(), "channel"));
  }

  /** Describes the network, in one line. */
  static String network(Scenario scenario) {
    Network network = scenario.network();
    return "a rank sends %s within its node and %s to others; a hop takes %s within and %s between nodes (Simple); launch %s"
        .formatted(
            Text.bandwidth(network.intra()),
            Text.bandwidth(network.inter()),
            Text.seconds(network.intraLatency()),
            Text.seconds(network.interLatency()),
            Text.seconds(network.launch()));
  }

  private void oneSize(long bytes) {
    out.printf("%n%s (%d bytes)%n", Text.bytes(bytes), bytes);
    out.printf(
        "  %-20s %-8s %14s %14s %14s  %s%n",
        "algorithm", "protocol", "time (us)", "algbw (GB/s)", "busbw (GB/s)", "limited by");
    for (Estimate estimate : model.estimates(bytes)) {
      out.printf(
          Locale.ROOT,
          "  %-20s %-8s %14.1f %14.2f %14.2f  %s%n",
          estimate.label(),
          protocol(estimate),
          Text.micros(estimate.seconds()),
          Text.gigas(estimate.algbw()),
          Text.gigas(estimate.busbw()),
          estimate.limit());
    }
    Estimate best = model.best(bytes);
    out.printf(
        "  best: %s with %s, %s%n", best.label(), protocol(best), Text.seconds(best.seconds()));
  }

  static String protocol(Estimate estimate) {
    return switch (estimate.protocol()) {
      case SIMPLE -> "Simple";
      case LL -> "LL";
      case LL128 -> "LL128";
    };
  }

  private void sizes() {
    out.printf("%n%10s", "size");
    for (Algorithm algorithm : model.algorithms()) {
      out.printf("  %22s", algorithm.label() + " (us)");
    }
    out.printf("  %-20s %12s%n", "best", "busbw (GB/s)");
    for (long bytes : Scenario.sizes()) {
      out.printf("%10s", Text.bytes(bytes));
      for (Algorithm algorithm : model.algorithms()) {
        Estimate estimate = model.best(algorithm, bytes);
        out.printf(
            Locale.ROOT, "  %15.1f %-6s", Text.micros(estimate.seconds()), protocol(estimate));
      }
      Estimate best = model.best(bytes);
      out.printf(Locale.ROOT, "  %-20s %12.2f%n", best.label(), Text.gigas(best.busbw()));
    }
  }

  private void crossovers() {
    out.printf("%ncrossovers, each algorithm with its best protocol%n");
    crossovers(scenario).forEach(line -> out.println("  " + line));
  }

  /** Describes the crossovers of each pair of algorithms, in one line. */
  static List<String> crossovers(Scenario scenario) {
    List<String> lines = new ArrayList<>();
    for (Scenario.Pair pair : scenario.pairs()) {
      List<Crossover> found = pair.crossovers(scenario.model());
      String name = pair.one().label() + " and " + pair.other().label();
      if (found.isEmpty()) {
        lines.add(
            "%s: %s is at least as fast at all sizes from %s to %s"
                .formatted(
                    name,
                    pair.first(scenario.model()).label(),
                    Text.bytes(Crossover.MIN_BYTES),
                    Text.bytes(Crossover.MAX_BYTES)));
      } else {
        lines.add(
            "%s: %s first, %s"
                .formatted(
                    name,
                    found.getFirst().below().label(),
                    found.stream()
                        .map(
                            crossover ->
                                "%s from %s (%d bytes)"
                                    .formatted(
                                        crossover.above().label(),
                                        Text.bytes(crossover.bytes()),
                                        crossover.bytes()))
                        .collect(Collectors.joining(", "))));
      }
    }
    return lines;
  }

  private void ranks() {
    out.printf("%nbest algorithm and its time by ranks and size%n%10s", "ranks");
    for (long bytes : RankSweep.SIZES) {
      out.printf("  %-26s", Text.bytes(bytes));
    }
    out.println();
    for (Model other : scenario.sweep().models()) {
      out.printf("%10d", other.cluster().ranks());
      for (long bytes : RankSweep.SIZES) {
        out.printf("  %-26s", inShort(other.best(bytes)));
      }
      out.println();
    }
  }

  /** Describes an estimate in a cell of a table. */
  static String inShort(Estimate estimate) {
    return "%s %s %s"
        .formatted(
            estimate.algorithm().label(), protocol(estimate), Text.seconds(estimate.seconds()));
  }

  private void notes() {
    out.printf(
        "%nA model: nothing was measured. The reference executes these ring and tree schedules.%n");
    if (model.algorithms().contains(Algorithm.HIERARCHICAL)) {
      out.println(
          "Hierarchical is three operations on communicators within and across nodes;"
              + " neither NCCL nor the reference does it automatically.");
    }
  }
}
