package io.nccl4j.tools.simulate;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.util.DefaultPrettyPrinter;
import java.io.IOException;
import java.io.StringWriter;
import java.util.List;
import java.util.Locale;

/** A scenario as JSON: bytes, seconds and bytes per second, without prefixes. */
final class JsonReport {
  private final JsonGenerator json;

  private JsonReport(JsonGenerator json) {
    this.json = json;
  }

  static String of(Scenario scenario) throws IOException {
    StringWriter text = new StringWriter();
    try (JsonGenerator json = new JsonFactory().createGenerator(text)) {
      json.setPrettyPrinter(new DefaultPrettyPrinter());
      new JsonReport(json).write(scenario);
    }
    return text.toString();
  }

  private void write(Scenario scenario) throws IOException {
    Model model = scenario.model();
    Network network = scenario.network();
    json.writeStartObject();
    json.writeNumberField("ranks", model.cluster().ranks());
    json.writeNumberField("ranks_per_node", model.cluster().ranksPerNode());
    json.writeNumberField("channels", scenario.channels());
    json.writeNumberField("intra_bandwidth", network.intra());
    json.writeNumberField("inter_bandwidth", network.inter());
    json.writeNumberField("intra_latency", network.intraLatency());
    json.writeNumberField("inter_latency", network.interLatency());
    json.writeNumberField("launch", network.launch());
    json.writeArrayFieldStart("estimates");
    List<Long> sizes = scenario.size() == null ? Scenario.sizes() : List.of(scenario.size());
    for (long bytes : sizes) {
      for (Estimate estimate : model.estimates(bytes)) {
        estimate(estimate);
      }
    }
    json.writeEndArray();
    crossovers(scenario.crossovers());
    if (scenario.sweep() != null) {
      ranks(scenario.sweep());
    }
    json.writeEndObject();
  }

  private void estimate(Estimate estimate) throws IOException {
    json.writeStartObject();
    json.writeNumberField("ranks", estimate.ranks());
    json.writeNumberField("bytes", estimate.bytes());
    json.writeStringField("algorithm", estimate.algorithm().label());
    json.writeStringField("across_nodes", estimate.across().label());
    json.writeStringField("protocol", estimate.protocol().name().toLowerCase(Locale.ROOT));
    json.writeNumberField("seconds", estimate.seconds());
    json.writeNumberField("latency_seconds", estimate.latency());
    json.writeNumberField("transfer_seconds", estimate.transfer());
    json.writeNumberField("algbw", estimate.algbw());
    json.writeNumberField("busbw", estimate.busbw());
    json.writeStringField("limited_by", estimate.limit());
    json.writeEndObject();
  }

  private void crossovers(List<Crossover> crossovers) throws IOException {
    json.writeArrayFieldStart("crossovers");
    for (Crossover crossover : crossovers) {
      json.writeStartObject();
      json.writeStringField("below", crossover.below().label());
      json.writeStringField("above", crossover.above().label());
      json.writeNumberField("bytes", crossover.bytes());
      json.writeEndObject();
    }
    json.writeEndArray();
  }

  private void ranks(RankSweep sweep) throws IOException {
    json.writeArrayFieldStart("best_by_ranks");
    for (Model model : sweep.models()) {
      for (long bytes : RankSweep.SIZES) {
        estimate(model.best(bytes));
      }
    }
    json.writeEndArray();
  }
}
