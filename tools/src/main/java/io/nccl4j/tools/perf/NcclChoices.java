package io.nccl4j.tools.perf;

import io.nccl4j.plugin.CostTable;
import io.nccl4j.plugin.NcclAlgorithm;
import io.nccl4j.plugin.NcclPlugins;
import io.nccl4j.plugin.NcclProtocol;
import io.nccl4j.plugin.Profiler;
import io.nccl4j.plugin.ProfilerEvent;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Has NCCL use what {@code --algo} and {@code --proto} say, by a tuner, and asks it for {@code
 * --show-algorithm} what it chose, by a profiler. NCCL gets only the plugins that are needed.
 */
final class NcclChoices {
  /** The beginning of the message for a choice that NCCL does not have for a row. */
  static final String REFUSED = "NCCL cannot use ";

  /** Stands for choices that this process does not know. */
  static final String UNKNOWN = "?";

  private static final String NOT_REPORTED = "-";
  private static final Duration REPORT_TIMEOUT = Duration.ofSeconds(30);

  private final Flags flags;
  private final Profiler profiler = this::report;
  private final Map<Long, String> byCall = new ConcurrentHashMap<>();

  // Of the row that is measured. Other threads read and set them while they enqueue.
  private volatile Algorithm algorithm = Algorithm.AUTO;
  private volatile NcclProtocol protocol;
  private volatile boolean asked;
  private volatile String refused;

  NcclChoices(Flags flags) {
    this.flags = flags;
  }

  /** Installs the plugins that the flags need. Must be called before NCCL is loaded. */
  static NcclChoices install(Flags flags) {
    NcclChoices choices = new NcclChoices(flags);
    if (choices.tunes()) {
      NcclPlugins.addTuner(choices::tune);
    }
    if (flags.showAlgorithm) {
      NcclPlugins.addProfiler(choices.profiler);
      NcclPlugins.removeProfiler(choices.profiler);
    }
    return choices;
  }

  private boolean tunes() {
    return flags.algorithms != null || flags.protocols != null;
  }

  /**
   * Sets the choice for a row, and enqueues one iteration of it, untimed, to see whether NCCL uses
   * it. NCCL reports only these iterations, so reports take no time from others.
   *
   * @param bytes the size of the row
   * @param iteration enqueues an iteration on all ranks of this process and waits for it
   * @return the choices that NCCL reports, or null if they are not to be shown
   * @throws BadArguments if NCCL cannot use the row's choice
   */
  SortedSet<String> of(long bytes, Runnable iteration) {
    if (!tunes() && !flags.showAlgorithm) {
      return null;
    }
    algorithm = flags.algorithm(bytes);
    protocol = flags.protocol(bytes);
    asked = false;
    refused = null;
    SortedSet<String> reported = flags.showAlgorithm ? reported(iteration) : null;
    if (reported == null) {
      iteration.run();
    }
    // Of a row without data, NCCL launches nothing.
    if (forces() && bytes > 0 && (!asked || refused != null)) {
      throw new BadArguments(
          REFUSED
              + "%s for %s of %d bytes here; %s"
                  .formatted(
                      forced(),
                      flags.collective.label(),
                      bytes,
                      asked
                          ? "it can use " + refused
                          : "it chooses nothing, as for a single rank"));
    }
    return reported;
  }

  /** Returns choices as one word: the choice, or all if they differ. */
  static String text(SortedSet<String> choices) {
    return choices.size() == 1 ? choices.first() : "differ:" + String.join(",", choices);
  }

  private boolean forces() {
    return algorithm != Algorithm.AUTO || protocol != null;
  }

  private String forced() {
    String name = algorithm == Algorithm.AUTO ? "any algorithm" : algorithm.label();
    return protocol == null ? name : name + " with " + protocol.name().toLowerCase(Locale.ROOT);
  }

  private void tune(CostTable costs) {
    if (!forces() || costs.operation() != flags.collective.operation()) {
      return;
    }
    NcclAlgorithm quickest = null;
    NcclProtocol itsProtocol = null;
    for (NcclAlgorithm each : NcclAlgorithm.values()) {
      for (NcclProtocol with : NcclProtocol.values()) {
        boolean wanted =
            (algorithm == Algorithm.AUTO || algorithm.name().equals(each.name()))
                && (protocol == null || protocol == with);
        if (wanted
            && costs.usable(each, with)
            && (quickest == null
                || costs.microseconds(each, with) < costs.microseconds(quickest, itsProtocol))) {
          quickest = each;
          itsProtocol = with;
        }
      }
    }
    if (quickest == null) {
      refused = usable(costs);
    } else {
      costs.select(quickest, itsProtocol);
    }
    asked = true;
  }

  private static String usable(CostTable costs) {
    SortedSet<String> usable = new TreeSet<>();
    for (NcclAlgorithm algorithm : NcclAlgorithm.values()) {
      for (NcclProtocol protocol : NcclProtocol.values()) {
        if (costs.usable(algorithm, protocol)) {
          usable.add((algorithm + " with " + protocol).toLowerCase(Locale.ROOT));
        }
      }
    }
    return String.join(", ", usable);
  }

  private SortedSet<String> reported(Runnable iteration) {
    byCall.clear();
    long dropped = NcclPlugins.droppedEvents();
    boolean all;
    NcclPlugins.addProfiler(profiler);
    try {
      iteration.run();
      all = NcclPlugins.awaitEvents(REPORT_TIMEOUT) && NcclPlugins.droppedEvents() == dropped;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("interrupted while NCCL's reports were awaited", e);
    } finally {
      NcclPlugins.removeProfiler(profiler);
    }
    SortedSet<String> reported = reported();
    if (!all) {
      reported.add(UNKNOWN);
    }
    return reported;
  }

  /** Returns what the calls of an iteration led to, each choice once. */
  SortedSet<String> reported() {
    return new TreeSet<>(byCall.isEmpty() ? List.of(NOT_REPORTED) : byCall.values());
  }

  void report(ProfilerEvent event) {
    if (event instanceof ProfilerEvent.Called call) {
      byCall.put(call.id(), NOT_REPORTED);
    } else if (event instanceof ProfilerEvent.Collective launched) {
      byCall.put(
          launched.call(),
          "%s/%s/%d".formatted(launched.algorithm(), launched.protocol(), launched.channels()));
    }
  }
}
