package io.nccl4j.plugin;

import io.nccl4j.Operation;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;

/** The code of {@code docs/guides/plugins.md} that learns from a sweep. */
final class LearnedTuner {
  private LearnedTuner() {}

  record Choice(NcclAlgorithm algorithm, NcclProtocol protocol) {}

  // Learns the quickest choice for each size from the CSV of a sweep.
  static void learn(Path sweep, Path table) throws IOException {
    Map<String, String[]> quickest = new LinkedHashMap<>();
    for (String line : Files.readAllLines(sweep)) {
      // size_bytes, choice, algorithm, protocol, state, time_us, ...
      String[] cells = line.split(",", -1);
      if (cells[4].equals("ok") && !cells[3].isEmpty()) {
        double micros = Double.parseDouble(cells[5]);
        quickest.merge(cells[0], cells, (a, b) -> micros < Double.parseDouble(a[5]) ? b : a);
      }
    }
    List<String> lines = new ArrayList<>();
    quickest.values().forEach(best -> lines.add(String.join(" ", best[0], best[2], best[3])));
    Files.write(table, lines);
  }

  // Uses the choices for all-reduces of this many ranks, each from its size on.
  static Tuner tuner(Path table, int ranks) throws IOException {
    NavigableMap<Long, Choice> choices = new TreeMap<>();
    for (String line : Files.readAllLines(table)) {
      String[] words = line.toUpperCase(Locale.ROOT).split(" ", -1);
      NcclAlgorithm algorithm = NcclAlgorithm.valueOf(words[1]);
      choices.put(Long.valueOf(words[0]), new Choice(algorithm, NcclProtocol.valueOf(words[2])));
    }
    return costs -> {
      var learned = choices.floorEntry(costs.bytes());
      if (costs.operation() == Operation.ALL_REDUCE && costs.ranks() == ranks && learned != null) {
        Choice choice = learned.getValue();
        if (costs.usable(choice.algorithm(), choice.protocol())) {
          costs.select(choice.algorithm(), choice.protocol());
        }
      }
    };
  }
}
