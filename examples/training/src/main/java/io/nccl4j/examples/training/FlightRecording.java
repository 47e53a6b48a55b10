package io.nccl4j.examples.training;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import jdk.jfr.Recording;

/** A flight recording of this process. */
final class FlightRecording implements AutoCloseable {
  private final Recording recording;

  private FlightRecording(Recording recording) {
    this.recording = recording;
  }

  /** Starts to record only nccl4j's events and the phases of training. */
  static FlightRecording start() {
    Recording recording = new Recording();
    recording.start();
    return new FlightRecording(recording);
  }

  void write(Path file) {
    recording.stop();
    try {
      recording.dump(file);
    } catch (IOException e) {
      throw new UncheckedIOException("the recording cannot be written to " + file, e);
    }
  }

  @Override
  public void close() {
    recording.close();
  }
}
