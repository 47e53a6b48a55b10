package io.nccl4j.tools.simulate;

import java.util.ArrayList;
import java.util.List;

/**
 * A size at which another algorithm becomes faster, each with its best protocol.
 *
 * @param below the faster algorithm below that size
 * @param above the faster algorithm at that size and above
 * @param bytes the size, in bytes
 */
record Crossover(Algorithm below, Algorithm above, long bytes) {
  /** The smallest size of the search. */
  static final long MIN_BYTES = 8;

  /** The largest size of the search. */
  static final long MAX_BYTES = 64L << 30;

  /** Returns the crossovers of two algorithms, in order of size. */
  static List<Crossover> between(Model model, Algorithm one, Algorithm other) {
    List<Crossover> found = new ArrayList<>();
    boolean before = faster(model, one, other, MIN_BYTES);
    for (long bytes = 2 * MIN_BYTES; bytes <= MAX_BYTES; bytes *= 2) {
      boolean now = faster(model, one, other, bytes);
      if (now != before) {
        long first = bisect(model, one, other, bytes / 2, bytes);
        found.add(new Crossover(before ? one : other, before ? other : one, first));
      }
      before = now;
    }
    return found;
  }

  private static long bisect(Model model, Algorithm one, Algorithm other, long low, long high) {
    boolean below = faster(model, one, other, low);
    long same = low;
    long changed = high;
    while (changed - same > Model.ELEMENT_BYTES) {
      long middle = (same + changed) / 2 / Model.ELEMENT_BYTES * Model.ELEMENT_BYTES;
      if (faster(model, one, other, middle) == below) {
        same = middle;
      } else {
        changed = middle;
      }
    }
    return changed;
  }

  /** Returns whether one algorithm is at least as fast as another. */
  static boolean faster(Model model, Algorithm one, Algorithm other, long bytes) {
    return model.best(one, bytes).seconds() <= model.best(other, bytes).seconds();
  }
}
