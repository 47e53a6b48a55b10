package io.nccl4j.tools.trace;

import static java.util.stream.Collectors.toSet;

import io.nccl4j.tools.cli.BusBandwidth;
import io.nccl4j.tools.cli.Count;
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

/** Reads the events of one recording. */
final class RecordingReader {
  private static final String OURS = "io.nccl4j.";
  private static final long NANOS_PER_SECOND = 1_000_000_000;

  private final String file;
  private final Set<String> others;
  private final List<RecordedEvent> events = new ArrayList<>();
  private Source source;
  private final List<TraceSpan> spans = new ArrayList<>();
  private final List<Step> steps = new ArrayList<>();
  // How long the kernel of an operation ran.
  private final Map<List<Object>, Long> kernels = new HashMap<>();
  // Ranks that join a growing communicator know only its id.
  private final Map<String, String> namesById = new HashMap<>();

  private RecordingReader(String file, Set<String> others) {
    this.file = file;
    this.others = others;
  }

  /**
   * Reads a recording.
   *
   * @param others the names of other events to read
   */
  static RecordingReader of(Path path, Set<String> others) throws IOException {
    RecordingReader reader = new RecordingReader(path.toString(), others);
    reader.read(path);
    try {
      reader.source = reader.findSource();
      reader.findKernels();
      reader.events.forEach(reader::add);
    } catch (RuntimeException e) {
      // Unknown or damaged fields cause one of several exceptions.
      throw new IOException(
          path + " has an event of nccl4j that cannot be read: " + e.getMessage());
    }
    return reader;
  }

  /** Returns whether the recording has no events of nccl4j. */
  boolean empty() {
    return spans.isEmpty() && steps.isEmpty();
  }

  /** Returns the type names of all events that were read. */
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

  private void read(Path path) throws IOException {
    if (!Files.isRegularFile(path)) {
      throw new IOException(path + (Files.exists(path) ? " is not a file" : " does not exist"));
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
      // The JDK's parser may throw any of these if a file is truncated or damaged.
      throw new IOException(path + " is not a complete flight recording: " + e.getMessage());
    }
  }

  private void findKernels() {
    events.stream()
        .filter(event -> event.getEventType().getName().equals(OURS + "Kernel"))
        .forEach(event -> kernels.put(operation(event), event.getDuration("nanos").toNanos()));
  }

  private Source findSource() {
    return events.stream()
        .filter(event -> event.getEventType().getName().equals(OURS + "Process"))
        .findFirst()
        .map(
            event ->
                new Source(file, event.getLong("pid"), text(event, "host"), text(event, "clock")))
        .orElseGet(() -> new Source(file, -1, "unknown host", file));
  }

  private void add(RecordedEvent event) {
    String type = event.getEventType().getName();
    if (others.contains(type)) {
      addOther(event);
      return;
    }
    switch (type.substring(OURS.length())) {
      case "Collective" -> addCollective(event);
      case "Communicator" -> addCommunicator(event);
      case "Graph" -> addGraph(event);
      case "Library" ->
          step(event, -1, "load", event.getString("library") + " " + event.getString("path"));
      default -> {
        // The process is known already; a newer nccl4j may have other events.
      }
    }
  }

  private void addCollective(RecordedEvent event) {
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
                text(event, "operation"), event.getLong("bytes"), event.getInt("ranks")),
            choice(event));
    long ended = nanos(event.getEndTime());
    Long kernel = kernels.get(operation(event));
    long begun = kernel == null ? called + event.getDuration("queued").toNanos() : ended - kernel;
    spans.add(
        new TraceSpan(
            source,
            event.getInt("firstRank"),
            stream(event),
            text(event, "operation"),
            called,
            Math.min(Math.max(begun, called), ended),
            ended,
            moved,
            event.getString("error")));
  }

  /** Returns what identifies an operation in this recording. */
  private static List<Object> operation(RecordedEvent event) {
    return List.of(
        text(event, "communicator"),
        event.getInt("rank"),
        text(event, "operation"),
        event.getInt("peer"),
        event.getLong("sequence"));
  }

  /** Returns what NCCL chose, or null if it is not known or not recorded by an older nccl4j. */
  private static String choice(RecordedEvent event) {
    if (!event.hasField("channels") || event.getInt("channels") == 0) {
      return null;
    }
    String channels = Count.of(event.getInt("channels"), "channel");
    return event.getString("algorithm") == null
        ? channels
        : event.getString("algorithm") + ", " + event.getString("protocol") + ", " + channels;
  }

  private static TraceSpan.Lane stream(RecordedEvent event) {
    long stream = event.getLong("stream");
    return new TraceSpan.Lane(stream, "stream " + stream + ", device " + event.getInt("device"));
  }

  private void addCommunicator(RecordedEvent event) {
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

  private void addGraph(RecordedEvent event) {
    String graph = "graph " + event.getLong("graph") + ", " + event.getInt("operations");
    if (text(event, "step").equals("launch")) {
      spans.add(
          new TraceSpan(
              source,
              event.getInt("firstRank"),
              stream(event),
              graph + " operations",
              nanos(event.getStartTime()),
              nanos(event.getStartTime()),
              nanos(event.getEndTime()),
              null,
              event.getString("error")));
    } else {
      step(event, event.getInt("firstRank"), "capture", graph + " operations");
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

  private void addOther(RecordedEvent event) {
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

  /** Names an event by its type and its first string, which distinguishes events of one type. */
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
    return Objects.requireNonNull(event.getString(field), () -> "field " + field + " is missing");
  }

  private static long nanos(Instant time) {
    return time.getEpochSecond() * NANOS_PER_SECOND + time.getNano();
  }
}
