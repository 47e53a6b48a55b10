package io.nccl4j.tools.explain;

import io.nccl4j.schedule.RingSchedule;
import io.nccl4j.schedule.Schedule;
import io.nccl4j.schedule.TreeSchedule;
import io.nccl4j.tools.cli.Count;
import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/** Tellings as one self-contained page that plays their steps. */
final class HtmlPage {
  /** More frames make a page that no browser opens quickly. */
  static final int MOST_FRAMES = 5_000;

  private static final String PLACE_OF_DATA = "@DATA@";

  private HtmlPage() {}

  /**
   * Returns the page.
   *
   * @throws IllegalArgumentException if there are too many frames for one
   */
  static String of(List<Explanation> tellings) throws IOException {
    int frames =
        tellings.stream()
            .flatMap(telling -> telling.traces().stream())
            .mapToInt(story -> story.frames().size())
            .sum();
    if (frames > MOST_FRAMES) {
      throw new IllegalArgumentException(
          "a page of %,d frames is too large, the most is %,d; take a smaller --size or fewer --channels"
              .formatted(frames, MOST_FRAMES));
    }
    return template().replace(PLACE_OF_DATA, JsonTree.script(json(tellings)));
  }

  private static String template() throws IOException {
    try (InputStream in = HtmlPage.class.getResourceAsStream("player.html")) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  private static Object json(List<Explanation> tellings) {
    int ranks = tellings.getFirst().schedule().ranks();
    return JsonTree.object(
        "ranks",
        ranks,
        "title",
        "all_reduce of " + Count.of(ranks, "rank"),
        "views",
        tellings.stream()
            .flatMap(telling -> telling.traces().stream().map(story -> view(telling, story)))
            .toList());
  }

  private static Object view(Explanation telling, ChannelTrace story) {
    Schedule schedule = telling.schedule();
    String about =
        "elements %,d to %,d of %,d float32; %s"
            .formatted(
                schedule.begin(story.channel()),
                schedule.end(story.channel()) - 1,
                schedule.count(),
                story.shape());
    Map<String, Object> view =
        JsonTree.object(
            "name", telling.name(story),
            "about", about,
            "bytes", telling.bytes(),
            "chunks", story.chunks());
    IntStream ranks = IntStream.range(0, schedule.ranks());
    switch (story.schedule()) {
      case RingSchedule ring ->
          view.put("order", ranks.map(ring.ring(story.channel())::rank).boxed().toList());
      case TreeSchedule tree ->
          view.put("parents", ranks.map(tree.tree(story.channel())::parent).boxed().toList());
    }
    view.put("sent", IntStream.range(0, schedule.ranks()).mapToObj(schedule::bytesSent).toList());
    view.put("frames", story.frames().stream().map(frame -> frame(telling, frame)).toList());
    return view;
  }

  private static Object frame(Explanation telling, Frame frame) {
    return JsonTree.object(
        "name", telling.name(frame),
        "opening", frame.opening(),
        "moves", frame.moves().stream().map(move -> move(telling, move)).toList());
  }

  private static Object move(Explanation telling, Move move) {
    return JsonTree.object(
        "rank", move.step().rank(),
        "chunk", move.step().chunk(),
        "to", List.copyOf(move.step().to()),
        "value", move.value(),
        "changes", move.changes(),
        "result", move.step().action().keeps(),
        "says", move.sentence(!telling.toy()));
  }
}
