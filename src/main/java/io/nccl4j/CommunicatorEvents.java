package io.nccl4j;

import io.nccl4j.internal.jfr.CommunicatorEvent;
import io.nccl4j.internal.jfr.FlightRecorderEvents;

/** Records the life cycle of communicators while the JDK Flight Recorder is recording. */
final class CommunicatorEvents {
  private CommunicatorEvents() {}

  /** Runs a step of a communicator's life cycle, and records it if a recording is running. */
  static void step(CommunicatorCore communicator, String step, Runnable work) {
    if (!FlightRecorderEvents.on()) {
      work.run();
      return;
    }
    CommunicatorEvent event = new CommunicatorEvent();
    event.begin();
    try {
      work.run();
    } catch (Throwable failure) {
      event.error = failure.toString();
      throw failure;
    } finally {
      commit(event, communicator, step);
    }
  }

  /** Records a state change or a failure of a communicator. */
  static void record(CommunicatorCore communicator, String step, Throwable failure) {
    if (FlightRecorderEvents.on()) {
      CommunicatorEvent event = new CommunicatorEvent();
      event.error = failure == null ? null : failure.toString();
      commit(event, communicator, step);
    }
  }

  private static void commit(CommunicatorEvent event, CommunicatorCore of, String step) {
    if (event.shouldCommit()) {
      CommunicatorLineage lineage = of.lineage();
      event.step = step;
      event.communicator = of.identity();
      event.name = of.config().name();
      event.parent =
          lineage == null || lineage.parent() == null ? null : lineage.parent().identity();
      event.uniqueId = lineage == null ? null : lineage.fingerprint();
      event.backend = of.backend().name();
      event.rank = of.rank();
      event.ranks = of.size();
      event.firstRank = of.firstRank();
      event.device = of.device();
      event.commit();
    }
  }
}
