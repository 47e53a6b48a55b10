package io.nccl4j;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The operations that this thread captures, by the streams that they were enqueued on. */
final class Capture {
  private static final ThreadLocal<Capture> OF_THREAD = new ThreadLocal<>();

  private final Map<Stream, List<List<CheckedCall>>> launches = new HashMap<>();

  private Capture() {}

  /** Begins a capture by this thread. */
  static Capture begin() {
    Capture begun = new Capture();
    OF_THREAD.set(begun);
    ThreadScope.beginCapture();
    return begun;
  }

  /** Ends this thread's capture. */
  static void end() {
    ThreadScope.endCapture();
    OF_THREAD.remove();
  }

  /** Keeps operations for the graph that this thread's capture of a stream will make. */
  static void keep(Stream stream, List<CheckedCall> together) {
    OF_THREAD
        .get()
        .launches
        .computeIfAbsent(stream, first -> new ArrayList<>())
        .add(List.copyOf(together));
  }

  /** Returns the operations of a stream, in the parts in which they were launched. */
  List<List<CheckedCall>> launches(Stream stream) {
    return List.copyOf(launches.getOrDefault(stream, List.of()));
  }
}
