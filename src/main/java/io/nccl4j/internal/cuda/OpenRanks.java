package io.nccl4j.internal.cuda;

import io.nccl4j.internal.util.CloseAll;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The ranks of NCCL communicators that are open in this process. Freeing memory waits for kernels,
 * and a kernel waits for its peers. So memory is not freed while two ranks of one communicator are
 * open in this process, because one might wait for the other. Nor is it when one of them has
 * closed: the kernel of the other may be stuck until the same thread aborts it.
 */
public final class OpenRanks {
  private static final Map<Object, Set<Object>> OPEN = new HashMap<>();
  // The cohorts that have had two open ranks at once, until their last rank closes.
  private static final Set<Object> SHARED = new HashSet<>();
  private static final List<Runnable> WHEN_ALONE = new ArrayList<>();

  private OpenRanks() {}

  /**
   * Adds a rank before its communicator is created.
   *
   * @param cohort equal for the ranks of this process that may wait for each other
   * @param rank the identity of the rank; it must not refer to the communicator
   */
  public static synchronized void opened(Object cohort, Object rank) {
    Set<Object> ranks = OPEN.computeIfAbsent(cohort, none -> new HashSet<>());
    ranks.add(rank);
    if (ranks.size() > 1) {
      SHARED.add(cohort);
    }
  }

  /**
   * Removes a rank once its communicator has ended. If it was the last of its cohort, and no other
   * ranks may wait for each other, runs the steps added by {@link #whenAlone}. Not earlier, because
   * the other ranks of the cohort may be blocked until this thread has ended them too. Idempotent.
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
      SHARED.remove(cohort);
      steps = several() ? List.of() : List.copyOf(WHEN_ALONE);
    }
    CloseAll.all(steps);
  }

  /** Returns whether two ranks of this process may wait for each other, or have been able to. */
  public static synchronized boolean several() {
    return !SHARED.isEmpty();
  }

  /** Returns the size of the largest cohort. */
  static synchronized int maxTogether() {
    return OPEN.values().stream().mapToInt(Set::size).max().orElse(0);
  }

  /** Adds a step that runs whenever a cohort ends and no other ranks may wait for each other. */
  static synchronized void whenAlone(Runnable step) {
    WHEN_ALONE.add(step);
  }
}
