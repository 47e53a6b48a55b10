package io.nccl4j;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The operations that the current thread captures, by stream. */
final class Capture {
  private static final ThreadLocal<Capture> OF_THREAD = new ThreadLocal<>();

  private final Map<Stream, List<List<Call>>> launches = new HashMap<>();

  private Capture() {}

  /** Begins a capture by the current thread. */
  static Capture begin() {
    Capture begun = new Capture();
    OF_THREAD.set(begun);
    ThreadScope.beginCapture();
    return begun;
  }

  /** Ends the capture of the current thread. */
  static void end() {
    ThreadScope.endCapture();
    OF_THREAD.remove();
  }

  /**
   * Adds operations that were launched together to the capture of a stream by the current thread.
   */
  static void keep(Stream stream, List<Call> together) {
    OF_THREAD
        .get()
        .launches
        .computeIfAbsent(stream, first -> new ArrayList<>())
        .add(List.copyOf(together));
  }

  /** Returns the operations of a stream, grouped as they were launched. */
  List<List<Call>> launches(Stream stream) {
    return List.copyOf(launches.getOrDefault(stream, List.of()));
  }
}
