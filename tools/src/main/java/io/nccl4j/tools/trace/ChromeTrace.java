package io.nccl4j.tools.trace;

import static io.nccl4j.tools.cli.JsonTree.object;

import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/**
 * Formats a timeline in the JSON format of Perfetto and Chrome: a process for each rank, with a
 * thread for each of its streams and one for the calls. Flow arrows lead from a call to its
 * operation, and connect the spans of one operation on several ranks.
 *
 * @see <a
 *     href="https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU">Trace
 *     Event Format</a>
 */
final class ChromeTrace {
  // Larger than any stream number.
  private static final long CALLS = 1_000_000;
  // The drawn length of a call, whose duration is not recorded.
  private static final long CALL_NANOS = 1_000;
  private static final double NANOS_PER_MICRO = 1_000;
  private static final double GIGA = 1e9;

  /** Identifies an operation on all of its ranks. */
  private record OperationKey(String communicator, String kind, long sequence, int from, int to) {
    static OperationKey of(TraceSpan span) {
      TraceSpan.Moved moved = span.operation();
      return switch (span.name()) {
        case "send" -> message(moved, moved.rank(), moved.peer());
        case "recv" -> message(moved, moved.peer(), moved.rank());
        default -> new OperationKey(moved.communicator(), "", moved.sequence(), -1, -1);
      };
    }

    private static OperationKey message(TraceSpan.Moved moved, int from, int to) {
      return new OperationKey(moved.communicator(), "message", moved.sequence(), from, to);
    }
  }

  private final Timeline timeline;
  private final long start;
  private final Map<List<Object>, Long> threads = new LinkedHashMap<>();
  private long flows;

  private ChromeTrace(Timeline timeline) {
    this.timeline = timeline;
    this.start = timeline.start();
  }

  /** Returns a timeline as a tree, whose events are created while it is written. */
  static Map<String, Object> of(Timeline timeline) {
    ChromeTrace trace = new ChromeTrace(timeline);
    return object(
        "displayTimeUnit",
        "ns",
        "traceEvents",
        Stream.of(
                trace.metadata().stream(),
                timeline.spans().stream().flatMap(trace::span),
                timeline.steps().stream().map(trace::step),
                trace.flowsBetweenRanks().stream())
            .flatMap(events -> events),
        "otherData",
        object(
            "writer", "nccl4j trace", "start", Instant.ofEpochSecond(0, trace.start).toString()));
  }

  /** Numbers the threads, and returns the names of processes and threads. */
  private List<Map<String, Object>> metadata() {
    List<Map<String, Object>> names = new ArrayList<>();
    for (Map.Entry<Timeline.Owner, Integer> entry : timeline.processes().entrySet()) {
      Timeline.Owner process = entry.getKey();
      int number = entry.getValue();
      String name = process.rank() < 0 ? "" : "rank " + process.rank() + " on ";
      names.add(metadata("process_name", number, 0, "name", name + process.source()));
      names.add(metadata("process_sort_index", number, 0, "sort_index", number));
    }
    for (TraceSpan span : timeline.spans()) {
      int number = timeline.number(span.source(), span.rank());
      List<Object> key = List.of(number, span.lane());
      if (!threads.containsKey(key)) {
        long thread = span.lane().stream() > 0 ? span.lane().stream() : CALLS + 1 + threads.size();
        threads.put(key, thread);
        names.add(metadata("thread_name", number, thread, "name", span.lane().label()));
        names.add(metadata("thread_sort_index", number, thread, "sort_index", thread));
      }
      List<Object> calls = List.of(number, "calls");
      if (span.operation() != null && !threads.containsKey(calls)) {
        threads.put(calls, CALLS);
        names.add(metadata("thread_name", number, CALLS, "name", "calls"));
        names.add(metadata("thread_sort_index", number, CALLS, "sort_index", 0L));
      }
    }
    return names;
  }

  private static Map<String, Object> metadata(
      String name, int process, long thread, String field, Object value) {
    return object(
        "ph", "M", "name", name, "pid", process, "tid", thread, "args", object(field, value));
  }

  /** Returns a span and, for an operation, its call and an arrow from the call to the span. */
  private Stream<Map<String, Object>> span(TraceSpan span) {
    Map<String, Object> event =
        event("X", title(span), category(span), span, thread(span), span.begun());
    event.put("dur", (span.ended() - span.begun()) / NANOS_PER_MICRO);
    Map<String, Object> about = span.operation() == null ? object() : moved(span, span.operation());
    if (span.error() != null) {
      about.put("error", span.error());
    }
    event.put("args", about);
    if (span.operation() == null) {
      return Stream.of(event);
    }
    Map<String, Object> call = event("X", title(span), "call", span, CALLS, span.called());
    call.put(
        "dur", Math.max(1, Math.min(CALL_NANOS, span.begun() - span.called())) / NANOS_PER_MICRO);
    long flow = ++flows;
    return Stream.of(
        event,
        call,
        arrow("s", "enqueued", flow, span, CALLS, span.called()),
        arrow("f", "enqueued", flow, span, thread(span), span.begun()));
  }

  private static String title(TraceSpan span) {
    if (span.operation() == null) {
      return span.name();
    }
    return span.name()
        + (span.operation().rejected() ? ", rejected" : " #" + span.operation().sequence());
  }

  private static String category(TraceSpan span) {
    if (span.operation() != null) {
      return span.error() == null ? "collective" : "collective,failed";
    }
    return span.lane().stream() > 0 ? "graph" : "other";
  }

  private long thread(TraceSpan span) {
    return threads.get(List.of(timeline.number(span.source(), span.rank()), span.lane()));
  }

  private static Map<String, Object> moved(TraceSpan span, TraceSpan.Moved moved) {
    Map<String, Object> about =
        object(
            "operation", span.name(),
            "communicator", moved.communicator(),
            "sequence", moved.sequence(),
            "rank", moved.rank() + " of " + moved.ranks(),
            "bytes", moved.bytes(),
            "type", moved.type());
    if (moved.reduction() != null) {
      about.put("reduction", moved.reduction());
    }
    if (moved.choice() != null) {
      about.put("NCCL chose", moved.choice());
    }
    if (moved.peer() >= 0) {
      about.put("peer or root", moved.peer());
    }
    if (moved.group() != 0) {
      about.put("group", moved.group());
    }
    about.put("queued (us)", (span.begun() - span.called()) / NANOS_PER_MICRO);
    about.put("bus bandwidth (GB/s)", span.busBandwidth() / GIGA);
    return about;
  }

  private Map<String, Object> arrow(
      String phase, String name, long flow, TraceSpan span, long thread, long at) {
    Map<String, Object> arrow = event(phase, name, "flow", span, thread, at);
    arrow.put("id", flow);
    if (phase.equals("f")) {
      arrow.put("bp", "e");
    }
    return arrow;
  }

  /** Returns arrows between the ranks of each operation, in the order in which they began. */
  private List<Map<String, Object>> flowsBetweenRanks() {
    Map<OperationKey, List<TraceSpan>> all = new LinkedHashMap<>();
    for (TraceSpan span : timeline.spans()) {
      if (span.operation() != null && !span.operation().rejected()) {
        all.computeIfAbsent(OperationKey.of(span), key -> new ArrayList<>()).add(span);
      }
    }
    List<Map<String, Object>> arrows = new ArrayList<>();
    for (List<TraceSpan> spans : all.values()) {
      if (spans.size() > 1) {
        spans.sort(Comparator.comparingLong(TraceSpan::begun));
        long flow = ++flows;
        for (int i = 0; i < spans.size(); i++) {
          String phase = i == 0 ? "s" : i == spans.size() - 1 ? "f" : "t";
          TraceSpan span = spans.get(i);
          arrows.add(arrow(phase, "between ranks", flow, span, thread(span), span.begun()));
        }
      }
    }
    return arrows;
  }

  private Map<String, Object> step(Step step) {
    Map<String, Object> about =
        object("of", step.about(), "took (us)", step.nanos() / NANOS_PER_MICRO);
    if (step.error() != null) {
      about.put("error", step.error());
    }
    return object(
        "ph",
        "i",
        "s",
        "p",
        "name",
        step.name(),
        "cat",
        "step",
        "pid",
        timeline.number(step.source(), step.rank()),
        "tid",
        CALLS,
        "ts",
        (step.ended() - start) / NANOS_PER_MICRO,
        "args",
        about);
  }

  /** Returns an event of a span's process, to which the caller adds fields. */
  private Map<String, Object> event(
      String phase, String name, String category, TraceSpan span, long thread, long at) {
    return object(
        "ph", phase,
        "name", name,
        "cat", category,
        "pid", timeline.number(span.source(), span.rank()),
        "tid", thread,
        "ts", (at - start) / NANOS_PER_MICRO);
  }
}
