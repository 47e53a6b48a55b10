package io.nccl4j.contract;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Predicate;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;

/** A flight recording with the settings that everything has by itself. */
public final class Recorded implements AutoCloseable {
  private final Recording recording = new Recording();

  /** Begins to record. */
  public Recorded() {
    recording.start();
  }

  /** Returns the events of one kind, in the order in which they began. */
  public List<RecordedEvent> events(String name) {
    try {
      Path file = Files.createTempFile("recorded", ".jfr");
      try {
        recording.dump(file);
        return RecordingFile.readAllEvents(file).stream()
            .filter(event -> event.getEventType().getName().equals("io.nccl4j." + name))
            .sorted(Comparator.comparing(RecordedEvent::getStartTime))
            .toList();
      } finally {
        Files.delete(file);
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Returns events, when there are so many: a device may tell of its end a little later. */
  public List<RecordedEvent> events(String name, int count) {
    return events(name, event -> true, count);
  }

  /** Returns those of the events that are wanted, when there are so many of them. */
  public List<RecordedEvent> events(String name, Predicate<RecordedEvent> wanted, int count) {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
    while (true) {
      List<RecordedEvent> events = events(name).stream().filter(wanted).toList();
      if (events.size() >= count || System.nanoTime() >= end) {
        return events;
      }
      LockSupport.parkNanos(20_000_000);
    }
  }

  @Override
  public void close() {
    recording.close();
  }
}
