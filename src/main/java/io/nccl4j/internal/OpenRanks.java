package io.nccl4j.internal;

import io.nccl4j.internal.util.CloseAll;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The ranks of NCCL communicators that are open in this process. Freeing memory waits for kernels,
 * and a kernel waits for its peers, so memory is not freed while two ranks of one communicator are
 * open here: one might wait for the other.
 */
public final class OpenRanks {
  private static final Map<Object, Set<Object>> OPEN = new HashMap<>();
  private static final List<Runnable> WHEN_ALONE = new ArrayList<>();

  private OpenRanks() {}

  /**
   * Notes a rank, before its communicator is made.
   *
   * @param cohort equal for those ranks of this process that may wait for each other
   * @param rank stands for the rank; it must not refer to the communicator
   */
  public static synchronized void opened(Object cohort, Object rank) {
    OPEN.computeIfAbsent(cohort, none -> new HashSet<>()).add(rank);
  }

  /**
   * Notes that a rank's communicator is gone. If that was the last one of its cohort, and no other
   * ranks may wait for each other, runs what waited for that. Not earlier: the others of the cohort
   * may be stuck until this thread has ended them too. Idempotent.
   */
  public static void closed(Object cohort, Object rank) {
    List<Runnable> steps;
    synchronized (OpenRanks.class) {
      Set<Object> ranks = OPEN.get(cohort);
      if (ranks == null || !ranks.remove(rank)) {
        return;
      }
      if (!ranks.isEmpty()) {
        return;
      }
      OPEN.remove(cohort);
      steps = several() ? List.of() : List.copyOf(WHEN_ALONE);
    }
    CloseAll.all(steps);
  }

  /** Returns whether two ranks that may wait for each other are open here. */
  public static boolean several() {
    return mostTogether() > 1;
  }

  /** Returns how many ranks that may wait for each other are open here at most. */
  static synchronized int mostTogether() {
    return OPEN.values().stream().mapToInt(Set::size).max().orElse(0);
  }

  /** Adds a step for the end of a cohort after which no ranks may wait for each other. */
  static synchronized void whenAlone(Runnable step) {
    WHEN_ALONE.add(step);
  }
}
