package io.nccl4j.tools.simulate;

import static io.nccl4j.tools.cli.JsonTree.object;

import io.nccl4j.tools.cli.JsonTree;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** Formats a scenario as JSON, in bytes, seconds and bytes per second. */
final class JsonReport {
  private JsonReport() {}

  static String of(Scenario scenario) {
    Model model = scenario.model();
    Network network = scenario.network();
    List<Long> sizes = scenario.size() == null ? Scenario.sizes() : List.of(scenario.size());
    List<Object> estimates =
        sizes.stream()
            .flatMap(bytes -> model.estimates(bytes).stream().map(JsonReport::estimate))
            .toList();
    Map<String, Object> json =
        object(
            "ranks", model.cluster().ranks(),
            "ranks_per_node", model.cluster().ranksPerNode(),
            "channels", scenario.channels(),
            "intra_bandwidth", network.intra(),
            "inter_bandwidth", network.inter(),
            "intra_latency", network.intraLatency(),
            "inter_latency", network.interLatency(),
            "launch", network.launch(),
            "estimates", estimates,
            "crossovers", scenario.crossovers().stream().map(JsonReport::crossover).toList());
    if (scenario.sweep() != null) {
      json.put("best_by_ranks", best(scenario.sweep()));
    }
    return JsonTree.text(json);
  }

  private static Object estimate(Estimate estimate) {
    return object(
        "ranks", estimate.ranks(),
        "bytes", estimate.bytes(),
        "algorithm", estimate.algorithm().label(),
        "across_nodes", estimate.across().label(),
        "protocol", estimate.protocol().name().toLowerCase(Locale.ROOT),
        "seconds", estimate.seconds(),
        "latency_seconds", estimate.latency(),
        "transfer_seconds", estimate.transfer(),
        "algbw", estimate.algbw(),
        "busbw", estimate.busbw(),
        "limited_by", estimate.limit());
  }

  private static Object crossover(Crossover crossover) {
    return object(
        "below", crossover.below().label(),
        "above", crossover.above().label(),
        "bytes", crossover.bytes());
  }

  private static Object best(RankSweep sweep) {
    return sweep.models().stream()
        .flatMap(model -> RankSweep.SIZES.stream().map(model::best).map(JsonReport::estimate))
        .toList();
  }
}
