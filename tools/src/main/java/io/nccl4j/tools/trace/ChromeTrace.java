package io.nccl4j.tools.trace;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.io.Writer;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Writes a timeline in the JSON format of Perfetto and Chrome: a process for each rank, with a
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
  private final JsonGenerator json;
  private final long start;
  private final Map<List<Object>, Long> threads = new LinkedHashMap<>();
  private long flows;

  private ChromeTrace(Timeline timeline, JsonGenerator json) {
    this.timeline = timeline;
    this.json = json;
    this.start = timeline.start();
  }

  /** Writes a timeline; the writer stays open. */
  static void write(Timeline timeline, Writer to) throws IOException {
    try (JsonGenerator json =
        new JsonFactory().createGenerator(to).disable(JsonGenerator.Feature.AUTO_CLOSE_TARGET)) {
      new ChromeTrace(timeline, json).write();
    }
  }

  private void write() throws IOException {
    json.writeStartObject();
    json.writeStringField("displayTimeUnit", "ns");
    json.writeArrayFieldStart("traceEvents");
    processes();
    for (TraceSpan span : timeline.spans()) {
      span(span);
    }
    for (Step step : timeline.steps()) {
      step(step);
    }
    flowsBetweenRanks();
    json.writeEndArray();
    json.writeObjectFieldStart("otherData");
    json.writeStringField("writer", "nccl4j scripts/nccl4j trace");
    json.writeStringField("start", Instant.ofEpochSecond(0, start).toString());
    json.writeEndObject();
    json.writeEndObject();
  }

  private void processes() throws IOException {
    for (Map.Entry<Timeline.Owner, Integer> entry : timeline.processes().entrySet()) {
      Timeline.Owner process = entry.getKey();
      int number = entry.getValue();
      String name = process.rank() < 0 ? "" : "rank " + process.rank() + " on ";
      metadata("process_name", number, 0, "name", name + process.source());
      metadata("process_sort_index", number, 0, "sort_index", number);
    }
    for (TraceSpan span : timeline.spans()) {
      int number = timeline.number(span.source(), span.rank());
      List<Object> key = List.of(number, span.lane());
      if (!threads.containsKey(key)) {
        long thread = span.lane().stream() > 0 ? span.lane().stream() : CALLS + 1 + threads.size();
        threads.put(key, thread);
        metadata("thread_name", number, thread, "name", span.lane().label());
        metadata("thread_sort_index", number, thread, "sort_index", thread);
      }
      List<Object> calls = List.of(number, "calls");
      if (span.operation() != null && !threads.containsKey(calls)) {
        threads.put(calls, CALLS);
        metadata("thread_name", number, CALLS, "name", "calls");
        metadata("thread_sort_index", number, CALLS, "sort_index", 0L);
      }
    }
  }

  private void metadata(String name, int process, long thread, String field, Object value)
      throws IOException {
    json.writeStartObject();
    json.writeStringField("ph", "M");
    json.writeStringField("name", name);
    json.writeNumberField("pid", process);
    json.writeNumberField("tid", thread);
    json.writeObjectFieldStart("args");
    json.writePOJOField(field, value);
    json.writeEndObject();
    json.writeEndObject();
  }

  private void span(TraceSpan span) throws IOException {
    begin("X", title(span), category(span), span, thread(span), span.begun());
    json.writeNumberField("dur", (span.ended() - span.begun()) / NANOS_PER_MICRO);
    json.writeObjectFieldStart("args");
    if (span.operation() != null) {
      moved(span, span.operation());
    }
    if (span.error() != null) {
      json.writeStringField("error", span.error());
    }
    json.writeEndObject();
    json.writeEndObject();
    if (span.operation() != null) {
      call(span);
    }
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

  private void moved(TraceSpan span, TraceSpan.Moved moved) throws IOException {
    json.writeStringField("operation", span.name());
    json.writeStringField("communicator", moved.communicator());
    json.writeNumberField("sequence", moved.sequence());
    json.writeStringField("rank", moved.rank() + " of " + moved.ranks());
    json.writeNumberField("bytes", moved.bytes());
    json.writeStringField("type", moved.type());
    if (moved.reduction() != null) {
      json.writeStringField("reduction", moved.reduction());
    }
    if (moved.peer() >= 0) {
      json.writeNumberField("peer or root", moved.peer());
    }
    if (moved.group() != 0) {
      json.writeNumberField("group", moved.group());
    }
    json.writeNumberField("queued (us)", (span.begun() - span.called()) / NANOS_PER_MICRO);
    json.writeNumberField("bus bandwidth (GB/s)", span.busBandwidth() / GIGA);
  }

  /** Writes the call, and an arrow from it to its operation. */
  private void call(TraceSpan span) throws IOException {
    begin("X", title(span), "call", span, CALLS, span.called());
    json.writeNumberField(
        "dur", Math.max(1, Math.min(CALL_NANOS, span.begun() - span.called())) / NANOS_PER_MICRO);
    json.writeEndObject();
    long flow = ++flows;
    arrow("s", "enqueued", flow, span, CALLS, span.called());
    arrow("f", "enqueued", flow, span, thread(span), span.begun());
  }

  private void arrow(String phase, String name, long flow, TraceSpan span, long thread, long at)
      throws IOException {
    begin(phase, name, "flow", span, thread, at);
    json.writeNumberField("id", flow);
    if (phase.equals("f")) {
      json.writeStringField("bp", "e");
    }
    json.writeEndObject();
  }

  /** Writes arrows between the ranks of each operation, in the order in which they began. */
  private void flowsBetweenRanks() throws IOException {
    Map<OperationKey, List<TraceSpan>> all = new LinkedHashMap<>();
    for (TraceSpan span : timeline.spans()) {
      if (span.operation() != null && !span.operation().rejected()) {
        all.computeIfAbsent(OperationKey.of(span), key -> new ArrayList<>()).add(span);
      }
    }
    for (List<TraceSpan> spans : all.values()) {
      if (spans.size() > 1) {
        spans.sort(Comparator.comparingLong(TraceSpan::begun));
        long flow = ++flows;
        for (int i = 0; i < spans.size(); i++) {
          String phase = i == 0 ? "s" : i == spans.size() - 1 ? "f" : "t";
          TraceSpan span = spans.get(i);
          arrow(phase, "between ranks", flow, span, thread(span), span.begun());
        }
      }
    }
  }

  private void step(Step step) throws IOException {
    json.writeStartObject();
    json.writeStringField("ph", "i");
    json.writeStringField("s", "p");
    json.writeStringField("name", step.name());
    json.writeStringField("cat", "step");
    json.writeNumberField("pid", timeline.number(step.source(), step.rank()));
    json.writeNumberField("tid", CALLS);
    json.writeNumberField("ts", (step.ended() - start) / NANOS_PER_MICRO);
    json.writeObjectFieldStart("args");
    json.writeStringField("of", step.about());
    json.writeNumberField("took (us)", step.nanos() / NANOS_PER_MICRO);
    if (step.error() != null) {
      json.writeStringField("error", step.error());
    }
    json.writeEndObject();
    json.writeEndObject();
  }

  /** Begins an event of a span's process; the caller adds fields and ends it. */
  private void begin(
      String phase, String name, String category, TraceSpan span, long thread, long at)
      throws IOException {
    json.writeStartObject();
    json.writeStringField("ph", phase);
    json.writeStringField("name", name);
    json.writeStringField("cat", category);
    json.writeNumberField("pid", timeline.number(span.source(), span.rank()));
    json.writeNumberField("tid", thread);
    json.writeNumberField("ts", (at - start) / NANOS_PER_MICRO);
  }
}
