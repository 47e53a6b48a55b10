package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclResult;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.util.Deadline;
import java.util.BitSet;

/**
 * A world that grows: where its ranks and the new ones meet. The site of the rank that made the id
 * knows it by that until all have come, or the rank has gone.
 */
public final class GrowBootstrap implements BootstrapTarget {
  private final Bootstraps bootstraps;
  private final BootstrapKey key;
  private UniqueId id;
  private int maker;
  private int size;
  private volatile Bootstrap bootstrap;
  private String failure;

  GrowBootstrap(Bootstraps meetings, BootstrapKey occasion) {
    this.bootstraps = meetings;
    this.key = occasion;
  }

  /** Makes the id that new ranks find this by. */
  public synchronized UniqueId newId(int rank) {
    if (id != null) {
      throw refused("rank " + maker + " has made an id, which waits for its grow");
    }
    id = InitBootstrap.newId(bootstraps.endpoint(), BootstrapKey.GROW);
    maker = rank;
    bootstraps.endpoint().open(id, this);
    return id;
  }

  /** Returns where all meet; the first to come says how many they will be. */
  public synchronized Bootstrap bootstrap(int newSize) {
    if (bootstrap == null) {
      if (newSize <= bootstraps.parentSize()) {
        throw refused(
            "a rank wants " + newSize + " ranks; there are " + bootstraps.parentSize() + " before");
      }
      if (newSize > RankMap.MOST_RANKS) {
        throw refused(
            "a rank wants "
                + newSize
                + " ranks; the reference backend takes at most "
                + RankMap.MOST_RANKS);
      }
      size = newSize;
      BitSet expected = new BitSet();
      expected.set(0, newSize);
      Bootstrap opened = bootstraps.open(key, expected, this::over);
      if (failure != null) {
        opened.fail(failure, null);
      }
      bootstrap = opened;
    }
    if (newSize != size) {
      throw refused("a rank wants " + newSize + " ranks, the ranks before it " + size);
    }
    return bootstrap;
  }

  /** Returns the meeting for a new size, or null if there is none. */
  synchronized Bootstrap knownBootstrap(int newSize) {
    return newSize == size ? bootstrap : null;
  }

  private void over(boolean done) {
    if (done) {
      forget();
    }
  }

  void checkPresent() {
    Bootstrap now = bootstrap;
    if (now != null) {
      now.checkPresent();
    }
  }

  @Override
  public boolean grows() {
    return true;
  }

  @Override
  public void fail(String why) {
    Bootstrap now;
    synchronized (this) {
      failure = why;
      now = bootstrap;
    }
    // Outside the lock: a meeting that is done calls forget while it holds its own.
    if (now != null) {
      now.fail(why, null);
    }
  }

  @Override
  public void addListener(JoinRequest visitor, Bootstrap.StateListener audience) {
    bootstrap(visitor.size()).addListener(audience);
  }

  @Override
  public Bootstrap admit(JoinRequest visitor, Deadline deadline) {
    if (!visitor.options().equals(bootstraps.options())) {
      throw refused(
          "the new rank has other options than the ranks before it: "
              + visitor.options()
              + ", "
              + bootstraps.options());
    }
    if (visitor.rank() < bootstraps.parentSize()) {
      throw refused(
          "rank "
              + visitor.rank()
              + " has its place already; new ranks start at "
              + bootstraps.parentSize());
    }
    Bootstrap now = bootstrap(visitor.size());
    ProcessAddress at =
        visitor.process() != null ? visitor.process() : bootstraps.endpoint().address();
    now.arrive(new Bootstrap.MembershipRequest(visitor.rank(), 0, visitor.rank(), at));
    return now;
  }

  /** Lets nobody find this any more. */
  public void forget() {
    closeId();
    bootstraps.forget(key);
  }

  /** Lets no new rank find this any more; ranks of the parent that are late still do. */
  public synchronized void closeId() {
    if (id != null) {
      bootstraps.endpoint().close(id, this);
      bootstraps.endpoint().spend(ReferenceId.of(id).secret());
    }
  }

  private static NcclInvalidUsageException refused(String text) {
    return new NcclInvalidUsageException(
        BootstrapKey.GROW, NcclResult.INVALID_USAGE.code(), text, "");
  }
}
