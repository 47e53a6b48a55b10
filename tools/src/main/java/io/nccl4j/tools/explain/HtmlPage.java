package io.nccl4j.tools.explain;

import io.nccl4j.internal.schedule.RingSchedule;
import io.nccl4j.internal.schedule.Schedule;
import io.nccl4j.internal.schedule.TreeSchedule;
import io.nccl4j.tools.cli.Count;
import io.nccl4j.tools.cli.JsonTree;
import io.nccl4j.tools.cli.Template;
import io.nccl4j.tools.plots.Page;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/** Formats explanations as a self-contained page that animates their steps. */
final class HtmlPage {
  /** The most frames that a browser opens quickly. */
  static final int MAX_FRAMES = 5_000;

  private HtmlPage() {}

  /**
   * Returns the page.
   *
   * @throws IllegalArgumentException if there are too many frames for a page
   */
  static String of(List<Explanation> explanations) throws IOException {
    int frames =
        explanations.stream()
            .flatMap(explanation -> explanation.traces().stream())
            .mapToInt(trace -> trace.frames().size())
            .sum();
    if (frames > MAX_FRAMES) {
      throw new IllegalArgumentException(
          "%,d frames are too many, the limit is %,d; use a smaller --size or fewer --channels"
              .formatted(frames, MAX_FRAMES));
    }
    int ranks = explanations.getFirst().schedule().ranks();
    return new Page(
            "all_reduce of " + Count.of(ranks, "rank"),
            Map.of(),
            List.of(),
            "",
            Template.read(HtmlPage.class, "player.html", json(explanations)),
            List.of())
        .html();
  }

  private static Object json(List<Explanation> explanations) {
    return JsonTree.object(
        "ranks",
        explanations.getFirst().schedule().ranks(),
        "views",
        explanations.stream()
            .flatMap(
                explanation -> explanation.traces().stream().map(trace -> view(explanation, trace)))
            .toList());
  }

  private static Object view(Explanation explanation, ChannelTrace trace) {
    Schedule schedule = explanation.schedule();
    String about =
        "elements %,d to %,d of %,d float32; %s"
            .formatted(
                schedule.begin(trace.channel()),
                schedule.end(trace.channel()) - 1,
                schedule.count(),
                trace.shape());
    Map<String, Object> view =
        JsonTree.object(
            "name", explanation.name(trace),
            "about", about,
            "bytes", explanation.bytes(),
            "chunks", trace.chunks());
    IntStream ranks = IntStream.range(0, schedule.ranks());
    switch (trace.schedule()) {
      case RingSchedule ring ->
          view.put("order", ranks.map(ring.ring(trace.channel())::rank).boxed().toList());
      case TreeSchedule tree ->
          view.put("parents", ranks.map(tree.tree(trace.channel())::parent).boxed().toList());
    }
    view.put("sent", IntStream.range(0, schedule.ranks()).mapToObj(schedule::bytesSent).toList());
    view.put("frames", trace.frames().stream().map(frame -> frame(explanation, frame)).toList());
    return view;
  }

  private static Object frame(Explanation explanation, Frame frame) {
    return JsonTree.object(
        "name", explanation.name(frame),
        "firstFrame", frame.firstFrame(),
        "moves", frame.moves().stream().map(move -> move(explanation, move)).toList());
  }

  private static Object move(Explanation explanation, Move move) {
    return JsonTree.object(
        "rank", move.step().rank(),
        "chunk", move.step().chunk(),
        "to", List.copyOf(move.step().to()),
        "value", move.value(),
        "changes", move.changes(),
        "result", move.step().action().keeps(),
        "says", move.sentence(!explanation.toy()));
  }
}
