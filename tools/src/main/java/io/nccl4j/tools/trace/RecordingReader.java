package io.nccl4j.tools.trace;

import static java.util.stream.Collectors.toSet;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import jdk.jfr.EventType;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;

/** What one recording says, as it says it. */
final class RecordingReader {
  private static final String OURS = "io.nccl4j.";
  private static final long NANOS_PER_SECOND = 1_000_000_000;

  private final String file;
  private final Set<String> others;
  private final List<RecordedEvent> events = new ArrayList<>();
  private Source source;
  private final List<TraceSpan> spans = new ArrayList<>();
  private final List<Step> steps = new ArrayList<>();
  // Those that join a communicator which grows know it by its id alone.
  private final Map<String, String> namesById = new HashMap<>();

  private RecordingReader(String file, Set<String> others) {
    this.file = file;
    this.others = others;
  }

  /**
   * Reads a recording.
   *
   * @param others the names of events of others that are wanted too
   */
  static RecordingReader of(Path path, Set<String> others) throws BadRecordingException {
    RecordingReader reading = new RecordingReader(path.toString(), others);
    reading.read(path);
    try {
      reading.source = reading.findSource();
      reading.events.forEach(reading::take);
    } catch (RuntimeException e) {
      // Another release's fields, or damaged ones, come out as one of several.
      throw new BadRecordingException(
          path + " has an event of nccl4j that cannot be read: " + e.getMessage());
    }
    return reading;
  }

  /** Returns whether the recording has nothing of nccl4j in it. */
  boolean empty() {
    return spans.isEmpty() && steps.isEmpty();
  }

  /** Returns the names of the types of all events that were wanted. */
  Set<String> types() {
    return events.stream().map(event -> event.getEventType().getName()).collect(toSet());
  }

  Source source() {
    return source;
  }

  List<TraceSpan> spans() {
    return spans;
  }

  List<Step> steps() {
    return steps;
  }

  Map<String, String> namesById() {
    return namesById;
  }

  private void read(Path path) throws BadRecordingException {
    if (!Files.isRegularFile(path)) {
      throw new BadRecordingException(
          path + (Files.exists(path) ? " is no file" : " is not there"));
    }
    try (RecordingFile recording = new RecordingFile(path)) {
      while (recording.hasMoreEvents()) {
        RecordedEvent event = recording.readEvent();
        String name = event.getEventType().getName();
        if (name.startsWith(OURS) || others.contains(name)) {
          events.add(event);
        }
      }
    } catch (IOException | RuntimeException | InternalError e) {
      // The JDK's parser fails by any of them where a file is cut off or damaged.
      throw new BadRecordingException(path + " is no whole flight recording: " + e.getMessage());
    }
  }

  private Source findSource() {
    return events.stream()
        .filter(event -> event.getEventType().getName().equals(OURS + "Process"))
        .findFirst()
        .map(
            event ->
                new Source(file, event.getLong("pid"), text(event, "host"), text(event, "clock")))
        .orElseGet(() -> new Source(file, -1, "an unknown host", file));
  }

  private void take(RecordedEvent event) {
    String type = event.getEventType().getName();
    if (others.contains(type)) {
      takeOther(event);
      return;
    }
    switch (type.substring(OURS.length())) {
      case "Collective" -> takeCollective(event);
      case "Communicator" -> takeCommunicator(event);
      case "Graph" -> takeGraph(event);
      case "Library" ->
          step(event, -1, "load", event.getString("library") + " " + event.getString("path"));
      default -> {
        // Of the process all is known; a newer library may have what is not known here.
      }
    }
  }

  private void takeCollective(RecordedEvent event) {
    long called = nanos(event.getStartTime());
    TraceSpan.Moved moved =
        new TraceSpan.Moved(
            text(event, "communicator"),
            event.getLong("sequence"),
            event.getInt("rank"),
            event.getInt("ranks"),
            event.getInt("peer"),
            event.getLong("group"),
            event.getString("type"),
            event.getString("reduction"),
            BusBandwidth.bytes(
                text(event, "operation"), event.getLong("bytes"), event.getInt("ranks")));
    long ended = nanos(event.getEndTime());
    spans.add(
        new TraceSpan(
            source,
            event.getInt("firstRank"),
            stream(event),
            text(event, "operation"),
            called,
            Math.min(called + event.getDuration("queued").toNanos(), ended),
            ended,
            moved,
            event.getString("error")));
  }

  private static TraceSpan.Lane stream(RecordedEvent event) {
    long stream = event.getLong("stream");
    return new TraceSpan.Lane(stream, "stream " + stream + ", device " + event.getInt("device"));
  }

  private void takeCommunicator(RecordedEvent event) {
    String name = text(event, "communicator");
    String id = event.getString("uniqueId");
    if (id != null && !id.equals(name)) {
      namesById.put(id, name);
    }
    String label = text(event, "name");
    step(
        event,
        event.getInt("firstRank"),
        text(event, "step"),
        "%s%s, rank %d of %d"
            .formatted(
                label.isEmpty() ? "" : label + ", ",
                name,
                event.getInt("rank"),
                event.getInt("ranks")));
  }

  private void takeGraph(RecordedEvent event) {
    String what = "graph " + event.getLong("graph") + ", " + event.getInt("operations");
    if (text(event, "step").equals("launch")) {
      spans.add(
          new TraceSpan(
              source,
              event.getInt("firstRank"),
              stream(event),
              what + " operations",
              nanos(event.getStartTime()),
              nanos(event.getStartTime()),
              nanos(event.getEndTime()),
              null,
              event.getString("error")));
    } else {
      step(event, event.getInt("firstRank"), "capture", what + " operations");
    }
  }

  private void step(RecordedEvent event, int rank, String name, String about) {
    steps.add(
        new Step(
            source,
            rank,
            name,
            nanos(event.getEndTime()),
            event.getDuration().toNanos(),
            about,
            event.getString("error")));
  }

  private void takeOther(RecordedEvent event) {
    String thread =
        event.getThread() == null || event.getThread().getJavaName() == null
            ? "no thread"
            : event.getThread().getJavaName();
    long begun = nanos(event.getStartTime());
    spans.add(
        new TraceSpan(
            source,
            -1,
            new TraceSpan.Lane(0, "thread " + thread),
            nameOfOther(event),
            begun,
            begun,
            nanos(event.getEndTime()),
            null,
            null));
  }

  /** Names an event by its type and by its first text, which tells those of a type apart. */
  private static String nameOfOther(RecordedEvent event) {
    EventType type = event.getEventType();
    String name = type.getLabel() == null ? type.getName() : type.getLabel();
    return event.getFields().stream()
        .filter(field -> field.getTypeName().equals("java.lang.String"))
        .findFirst()
        .map(field -> event.getString(field.getName()))
        .filter(text -> !text.isBlank())
        .map(text -> name + ": " + text)
        .orElse(name);
  }

  private static String text(RecordedEvent event, String field) {
    return Objects.requireNonNull(event.getString(field), () -> "it has no " + field);
  }

  private static long nanos(Instant time) {
    return time.getEpochSecond() * NANOS_PER_SECOND + time.getNano();
  }
}
