package io.nccl4j.tools.explain;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import io.nccl4j.schedule.RingSchedule;
import io.nccl4j.schedule.TreeSchedule;
import io.nccl4j.tools.quantities.Count;
import java.io.IOException;
import java.io.InputStream;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.List;
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
  static String of(List<Telling> tellings) throws IOException {
    int frames =
        tellings.stream()
            .flatMap(telling -> telling.stories().stream())
            .mapToInt(story -> story.frames().size())
            .sum();
    if (frames > MOST_FRAMES) {
      throw new IllegalArgumentException(
          "a page of %,d frames is too large, the most is %,d; take a smaller --size or fewer --channels"
              .formatted(frames, MOST_FRAMES));
    }
    // No data may end the script element that it stands in.
    return template().replace(PLACE_OF_DATA, json(tellings).replace("<", "\\u003c"));
  }

  private static String template() throws IOException {
    try (InputStream in = HtmlPage.class.getResourceAsStream("player.html")) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  private static String json(List<Telling> tellings) throws IOException {
    StringWriter text = new StringWriter();
    int ranks = tellings.getFirst().schedule().ranks();
    try (JsonGenerator json = new JsonFactory().createGenerator(text)) {
      json.writeStartObject();
      json.writeNumberField("ranks", ranks);
      json.writeStringField("title", "all_reduce of " + Count.of(ranks, "rank"));
      json.writeArrayFieldStart("views");
      for (Telling telling : tellings) {
        for (Story story : telling.stories()) {
          view(json, telling, story);
        }
      }
      json.writeEndArray();
      json.writeEndObject();
    }
    return text.toString();
  }

  private static void view(JsonGenerator json, Telling telling, Story story) throws IOException {
    int ranks = telling.schedule().ranks();
    json.writeStartObject();
    json.writeStringField("name", telling.name(story));
    json.writeStringField(
        "about",
        "elements %,d to %,d of %,d float32; %s"
            .formatted(
                telling.schedule().begin(story.channel()),
                telling.schedule().end(story.channel()) - 1,
                telling.schedule().count(),
                story.shape()));
    json.writeNumberField("bytes", telling.bytes());
    json.writeNumberField("chunks", story.chunks());
    shape(json, story);
    json.writeArrayFieldStart("sent");
    for (int rank = 0; rank < ranks; rank++) {
      json.writeNumber(telling.schedule().bytesSent(rank));
    }
    json.writeEndArray();
    json.writeArrayFieldStart("frames");
    for (Frame frame : story.frames()) {
      frame(json, telling, frame);
    }
    json.writeEndArray();
    json.writeEndObject();
  }

  private static void shape(JsonGenerator json, Story story) throws IOException {
    int ranks = story.schedule().ranks();
    switch (story.schedule()) {
      case RingSchedule ring ->
          numbers(json, "order", IntStream.range(0, ranks).map(ring.ring(story.channel())::rank));
      case TreeSchedule tree ->
          numbers(
              json, "parents", IntStream.range(0, ranks).map(tree.tree(story.channel())::parent));
    }
  }

  private static void numbers(JsonGenerator json, String name, IntStream values)
      throws IOException {
    int[] array = values.toArray();
    json.writeFieldName(name);
    json.writeArray(array, 0, array.length);
  }

  private static void frame(JsonGenerator json, Telling telling, Frame frame) throws IOException {
    json.writeStartObject();
    json.writeStringField("name", telling.name(frame));
    json.writeNumberField("opening", frame.opening());
    json.writeArrayFieldStart("moves");
    for (Move move : frame.moves()) {
      json.writeStartObject();
      json.writeNumberField("rank", move.step().rank());
      json.writeNumberField("chunk", move.step().chunk());
      numbers(json, "to", move.step().to().stream().mapToInt(Integer::intValue));
      json.writeStringField("value", move.value());
      json.writeBooleanField("changes", move.changes());
      json.writeBooleanField("result", move.step().action().keeps());
      json.writeStringField("says", move.sentence(!telling.toy()));
      json.writeEndObject();
    }
    json.writeEndArray();
    json.writeEndObject();
  }
}
