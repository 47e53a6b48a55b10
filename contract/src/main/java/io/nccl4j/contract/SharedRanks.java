package io.nccl4j.contract;

import io.nccl4j.fixtures.RankThreads;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Keeps communicators from one test of a topic to the next, because creating one takes up to a
 * second on a GPU.
 */
final class SharedRanks implements AfterAllCallback {
  private static final List<Ranks> IDLE = new ArrayList<>();

  /** Returns idle ranks of a backend, or null if there are none. */
  static synchronized Ranks take(BackendUnderTest underTest, int size) {
    for (Ranks ranks : IDLE) {
      if (ranks.owner() == underTest && ranks.size() == size) {
        IDLE.remove(ranks);
        return ranks;
      }
    }
    return null;
  }

  /** Keeps ranks that no operation uses for the next test that needs such ranks. */
  static synchronized void keep(Ranks ranks) {
    IDLE.add(ranks);
  }

  @Override
  public void afterAll(ExtensionContext context) {
    List<Ranks> idle;
    synchronized (SharedRanks.class) {
      idle = List.copyOf(IDLE);
      IDLE.clear();
    }
    RankThreads.run(idle.size(), i -> idle.get(i).closeAll());
  }
}
