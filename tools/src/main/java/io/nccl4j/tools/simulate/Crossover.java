package io.nccl4j.tools.simulate;

import java.util.ArrayList;
import java.util.List;

/**
 * A size from which another algorithm is quicker, each with the protocol that suits it best.
 *
 * @param below the quicker algorithm below that size
 * @param above the quicker algorithm at it and above
 * @param bytes the first size where it is, in bytes
 */
record Crossover(Algorithm below, Algorithm above, long bytes) {
  /** Where the search begins and ends. */
  static final long LEAST = 8;

  static final long MOST = 64L << 30;

  /** Returns where two algorithms change places, from small sizes to large ones. */
  static List<Crossover> between(Model model, Algorithm one, Algorithm other) {
    List<Crossover> found = new ArrayList<>();
    boolean before = quicker(model, one, other, LEAST);
    for (long bytes = 2 * LEAST; bytes <= MOST; bytes *= 2) {
      boolean now = quicker(model, one, other, bytes);
      if (now != before) {
        long first = bisect(model, one, other, bytes / 2, bytes);
        found.add(new Crossover(before ? one : other, before ? other : one, first));
      }
      before = now;
    }
    return found;
  }

  private static long bisect(Model model, Algorithm one, Algorithm other, long low, long high) {
    boolean below = quicker(model, one, other, low);
    long same = low;
    long changed = high;
    while (changed - same > Model.ELEMENT_BYTES) {
      long middle = (same + changed) / 2 / Model.ELEMENT_BYTES * Model.ELEMENT_BYTES;
      if (quicker(model, one, other, middle) == below) {
        same = middle;
      } else {
        changed = middle;
      }
    }
    return changed;
  }

  /** Returns whether one algorithm is quicker than another, or as quick. */
  static boolean quicker(Model model, Algorithm one, Algorithm other, long bytes) {
    return model.best(one, bytes).seconds() <= model.best(other, bytes).seconds();
  }
}
