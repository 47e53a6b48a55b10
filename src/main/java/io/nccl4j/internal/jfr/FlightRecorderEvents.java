package io.nccl4j.internal.jfr;

import io.nccl4j.internal.util.LibraryVersion;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import jdk.jfr.FlightRecorder;
import jdk.jfr.FlightRecorderListener;
import jdk.jfr.Recording;
import jdk.jfr.RecordingState;

/** Tracks whether the JDK Flight Recorder is recording, and records the process. */
public final class FlightRecorderEvents {
  /**
   * Updates the flag whenever a recording starts or stops, however it was requested. Unlike other
   * ways to observe recordings, this does not start the recorder.
   */
  private static final class Listener implements FlightRecorderListener {
    @Override
    public void recorderInitialized(FlightRecorder recorder) {
      FlightRecorder.addPeriodicEvent(ProcessEvent.class, PROCESS);
      update(recorder);
    }

    @Override
    public void recordingStateChanged(Recording recording) {
      update(FlightRecorder.getFlightRecorder());
    }
  }

  private static final Listener LISTENER = new Listener();
  private static final Runnable PROCESS = FlightRecorderEvents::recordProcess;

  private static volatile boolean on;
  private static int openBackends;

  private FlightRecorderEvents() {}

  /** Starts to watch recordings, if this is the first open backend. */
  public static synchronized void backendOpened() {
    openBackends++;
    if (openBackends == 1) {
      FlightRecorder.addListener(LISTENER);
    }
  }

  /**
   * Stops watching recordings after the last backend, so that this class can be unloaded. What is
   * still open then is not recorded.
   */
  public static synchronized void backendClosed() {
    openBackends--;
    if (openBackends == 0) {
      if (on) {
        recordProcess(); // the recorder would only at the end of the recording
      }
      FlightRecorder.removeListener(LISTENER);
      FlightRecorder.removePeriodicEvent(PROCESS);
      on = false;
    }
  }

  /** Returns whether any recording is running, regardless of its enabled events. */
  public static boolean on() {
    return on;
  }

  private static void update(FlightRecorder recorder) {
    on = recorder.getRecordings().stream().anyMatch(r -> r.getState() == RecordingState.RUNNING);
  }

  private static void recordProcess() {
    ProcessEvent event = new ProcessEvent();
    event.pid = ProcessHandle.current().pid();
    event.host = line("/proc/sys/kernel/hostname");
    event.clock = line("/proc/sys/kernel/random/boot_id");
    event.library = LibraryVersion.current();
    event.commit();
  }

  private static String line(String file) {
    try {
      return Files.readString(Path.of(file)).strip();
    } catch (IOException e) {
      return "unknown: " + e;
    }
  }
}
