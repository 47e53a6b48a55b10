package io.nccl4j.tools.trace;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The time that a rank communicated, and the part of it in which another of its rows was busy.
 *
 * @param communicating nanoseconds in which at least one operation ran
 * @param besideOthers the part of them in which a span of another row ran as well
 */
record Overlap(long communicating, long besideOthers) {
  private record Edge(long at, TraceSpan span, int by) {}

  static Overlap of(List<TraceSpan> spans) {
    List<Edge> edges = new ArrayList<>();
    for (TraceSpan span : spans) {
      edges.add(new Edge(span.begun(), span, 1));
      edges.add(new Edge(span.ended(), span, -1));
    }
    edges.sort(Comparator.comparingLong(Edge::at));
    Map<TraceSpan.Lane, Integer> busy = new HashMap<>();
    int operations = 0;
    long communicating = 0;
    long besideOthers = 0;
    long before = 0;
    for (Edge edge : edges) {
      if (operations > 0) {
        communicating += edge.at - before;
        besideOthers += busy.size() > 1 ? edge.at - before : 0;
      }
      before = edge.at;
      operations += edge.span.operation() == null ? 0 : edge.by;
      busy.merge(edge.span.lane(), edge.by, (a, b) -> a + b == 0 ? null : a + b);
    }
    return new Overlap(communicating, besideOthers);
  }
}
