package io.nccl4j.tools.trace;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.tools.cli.JsonTree;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/** Tests of aligning clocks and of overlaps, with known times. */
class TimelineTest {
  private static final long MILLI = 1_000_000;

  private static Source source(String clock) {
    return new Source(clock + ".jfr", 1, "host " + clock, clock);
  }

  private static TraceSpan span(
      String clock, int rank, long stream, String name, long sequence, long begun, long ended) {
    return new TraceSpan(
        source(clock),
        rank,
        new TraceSpan.Lane(stream, "stream " + stream),
        name,
        begun,
        begun,
        ended,
        new TraceSpan.Moved("c", sequence, rank, 2, -1, 0, "FLOAT32", "sum", 4, null),
        null);
  }

  @Test
  void clocksAreAlignedByEndsOfCollectives() {
    List<TraceSpan> spans = new ArrayList<>();
    for (long i = 1; i <= 5; i++) {
      spans.add(span("a", 0, 1, "allReduce", i, 10 * i * MILLI, (10 * i + 2) * MILLI));
      // Seven milliseconds behind, once nine.
      long behind = i == 4 ? 9 : 7;
      spans.add(span("b", 1, 1, "allReduce", i, 10 * i * MILLI, (10 * i + 2 - behind) * MILLI));
    }
    // A root may finish long before the others.
    spans.add(span("a", 0, 1, "broadcast", 6, 0, 1000 * MILLI));
    spans.add(span("b", 1, 1, "broadcast", 6, 0, MILLI));
    Clocks.Offset offset = Clocks.of(spans).offsets().get("b");
    assertEquals(7 * MILLI, offset.nanos());
    assertEquals(5, offset.samples());
    assertEquals(0, offset.spread());
    assertEquals(0, Clocks.of(spans).offsetOf(source("a")));
  }

  @Test
  void clocksAreAlignedTransitively() {
    List<TraceSpan> spans =
        List.of(
            span("a", 0, 1, "allReduce", 1, 0, 10),
            span("c", 2, 1, "allReduce", 2, 0, 500),
            span("b", 1, 1, "allReduce", 1, 0, 110),
            span("b", 1, 1, "allReduce", 2, 110, 200));
    Clocks clocks = Clocks.of(spans);
    assertEquals(-100, clocks.offsetOf(source("b")));
    assertEquals(-400, clocks.offsetOf(source("c")));
  }

  @Test
  void unrelatedClockIsUnchanged() {
    Clocks clocks =
        Clocks.of(
            List.of(
                span("a", 0, 1, "allReduce", 1, 0, 10), span("b", 1, 1, "allReduce", 2, 0, 99)));
    assertEquals(new Clocks.Offset(0, 0, 0), clocks.offsets().get("b"));
  }

  @Test
  void overlapCountsOtherRows() {
    Overlap overlap =
        Overlap.of(
            List.of(
                span("a", 0, 1, "allReduce", 1, 0, 100),
                span("a", 0, 2, "allReduce", 2, 60, 140),
                span("a", 0, 1, "allReduce", 3, 200, 210)));
    assertEquals(150, overlap.communicating());
    assertEquals(40, overlap.besideOthers());
  }

  @Test
  void rejectedOperationHasNoFlow() {
    List<TraceSpan> spans = new ArrayList<>();
    for (int rank = 0; rank < 2; rank++) {
      spans.add(span("a", rank, 1, "broadcast", 0, 10, 11));
      spans.add(span("a", rank, 1, "allReduce", 0, 12, 13));
      spans.add(span("a", rank, 1, "allReduce", 1, 20, 30));
    }
    Timeline timeline = new Timeline(List.of(source("a")), spans, List.of(), Clocks.of(spans));
    String json = JsonTree.script(ChromeTrace.of(timeline));
    assertEquals(2, times("\"name\":\"between ranks\"", json), "from one rank to the other");
    for (String title : List.of("broadcast, rejected", "allReduce, rejected", "allReduce #1")) {
      assertEquals(2 * 2, times("\"name\":\"" + title + "\"", json), "span and call: " + title);
    }
  }

  private static int times(String part, String text) {
    return text.split(Pattern.quote(part), -1).length - 1;
  }

  @Test
  void operationsOfOneGroupDoNotOverlap() {
    Overlap overlap =
        Overlap.of(List.of(span("a", 0, 1, "send", 1, 0, 100), span("a", 0, 1, "recv", 1, 0, 100)));
    assertEquals(new Overlap(100, 0), overlap);
  }
}
