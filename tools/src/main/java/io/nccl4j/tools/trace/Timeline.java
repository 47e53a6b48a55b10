package io.nccl4j.tools.trace;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;

/** The events of all recordings, on one clock and with one name for each communicator. */
final class Timeline {
  // Java has two clocks, so consecutive spans may seem to overlap by up to this time.
  private static final long IMPRECISION_NANOS = 100_000;

  /**
   * A rank in one recording.
   *
   * @param source the recording
   * @param rank the rank, or -1 for spans and steps that belong to none
   */
  record Owner(Source source, int rank) {}

  private final List<Source> sources;
  private final List<TraceSpan> spans;
  private final List<Step> steps;
  private final Clocks clocks;
  private final Map<Owner, Integer> numbers;

  Timeline(List<Source> sources, List<TraceSpan> spans, List<Step> steps, Clocks clocks) {
    this.sources = sources;
    this.spans = spans;
    this.steps = steps;
    this.clocks = clocks;
    this.numbers = number();
  }

  static Timeline of(List<RecordingReader> readers) {
    Map<String, String> names = new HashMap<>();
    readers.forEach(reader -> names.putAll(reader.namesById()));
    List<TraceSpan> spans =
        readers.stream().flatMap(r -> r.spans().stream()).map(span -> named(span, names)).toList();
    Clocks clocks = Clocks.of(spans);
    Map<Source, Integer> singleRanks = singleRanks(spans);
    List<TraceSpan> aligned =
        spans.stream()
            .map(span -> span.shifted(clocks.offsetOf(span.source())))
            .map(span -> span.rank() < 0 ? ofRank(span, singleRanks) : span)
            .sorted(Comparator.comparingLong(TraceSpan::begun))
            .toList();
    List<Step> steps =
        readers.stream()
            .flatMap(r -> r.steps().stream())
            .map(step -> step.shifted(clocks.offsetOf(step.source())))
            .sorted(Comparator.comparingLong(Step::ended))
            .toList();
    return new Timeline(
        readers.stream().map(RecordingReader::source).toList(),
        withoutOverlaps(aligned),
        steps,
        clocks);
  }

  /** Replaces the id by which this rank knows a communicator by the name that the others use. */
  private static TraceSpan named(TraceSpan span, Map<String, String> names) {
    if (span.operation() == null) {
      return span;
    }
    String name = span.operation().communicator();
    int end = name.indexOf('/') < 0 ? name.length() : name.indexOf('/');
    String known = names.get(name.substring(0, end));
    return known == null
        ? span
        : span.withOperation(span.operation().in(known + name.substring(end)));
  }

  /** Returns the rank of each recording that has only one. */
  private static Map<Source, Integer> singleRanks(List<TraceSpan> spans) {
    Map<Source, Set<Integer>> ranks =
        spans.stream()
            .filter(span -> span.rank() >= 0)
            .collect(
                Collectors.groupingBy(
                    TraceSpan::source, Collectors.mapping(TraceSpan::rank, Collectors.toSet())));
    Map<Source, Integer> only = new HashMap<>();
    ranks.forEach(
        (source, of) -> {
          if (of.size() == 1) {
            only.put(source, of.iterator().next());
          }
        });
    return only;
  }

  private static TraceSpan ofRank(TraceSpan span, Map<Source, Integer> singleRanks) {
    return new TraceSpan(
        span.source(),
        singleRanks.getOrDefault(span.source(), -1),
        span.lane(),
        span.name(),
        span.called(),
        span.begun(),
        span.ended(),
        span.operation(),
        span.error());
  }

  /** Removes small apparent overlaps between consecutive spans of one stream. */
  private static List<TraceSpan> withoutOverlaps(List<TraceSpan> spans) {
    Map<List<Object>, TraceSpan> last = new HashMap<>();
    List<TraceSpan> ordered = new ArrayList<>();
    for (TraceSpan span : spans) {
      List<Object> track = List.of(span.source(), span.rank(), span.lane());
      TraceSpan before = last.get(track);
      long overlap = before == null ? 0 : before.ended() - span.begun();
      boolean sameGroup = before != null && group(before) != 0 && group(before) == group(span);
      TraceSpan placed =
          overlap > 0 && overlap < IMPRECISION_NANOS && !sameGroup
              ? span.begunAt(before.ended())
              : span;
      ordered.add(placed);
      last.put(track, placed);
    }
    return ordered;
  }

  private static long group(TraceSpan span) {
    return span.operation() == null ? 0 : span.operation().group();
  }

  /** Numbers the owners: by rank, or above all ranks if an owner has none or its rank is taken. */
  private Map<Owner, Integer> number() {
    Set<Owner> all = new HashSet<>();
    spans.forEach(span -> all.add(new Owner(span.source(), span.rank())));
    steps.forEach(step -> all.add(new Owner(step.source(), step.rank())));
    List<Owner> sorted =
        all.stream()
            .sorted(
                Comparator.comparingInt((Owner p) -> p.rank() < 0 ? Integer.MAX_VALUE : p.rank())
                    .thenComparingInt(p -> sources.indexOf(p.source())))
            .toList();
    int next = 1 + sorted.stream().mapToInt(Owner::rank).max().orElse(0);
    Set<Integer> taken = new HashSet<>();
    Map<Owner, Integer> given = new LinkedHashMap<>();
    for (Owner process : sorted) {
      boolean own = process.rank() >= 0 && taken.add(process.rank());
      given.put(process, own ? process.rank() : next++);
    }
    return given;
  }

  List<Source> sources() {
    return sources;
  }

  /** Returns the spans, in the order in which they began. */
  List<TraceSpan> spans() {
    return spans;
  }

  List<Step> steps() {
    return steps;
  }

  Clocks clocks() {
    return clocks;
  }

  /** Returns the owners and the number of each. */
  Map<Owner, Integer> processes() {
    return numbers;
  }

  int number(Source source, int rank) {
    return numbers.get(new Owner(source, rank));
  }

  /** Returns the earliest time. */
  long start() {
    long first = Long.MAX_VALUE;
    for (TraceSpan span : spans) {
      first = Math.min(first, span.called());
    }
    for (Step step : steps) {
      first = Math.min(first, step.ended() - step.nanos());
    }
    return first;
  }

  /** Returns the latest time. */
  long end() {
    long last = Long.MIN_VALUE;
    for (TraceSpan span : spans) {
      last = Math.max(last, span.ended());
    }
    for (Step step : steps) {
      last = Math.max(last, step.ended());
    }
    return last;
  }

  /** Returns the spans of each owner, by its number. */
  Map<Integer, List<TraceSpan>> byProcess() {
    Map<Integer, List<TraceSpan>> by = new TreeMap<>();
    for (TraceSpan span : spans) {
      by.computeIfAbsent(number(span.source(), span.rank()), n -> new ArrayList<>()).add(span);
    }
    return by;
  }
}
