package io.nccl4j.internal.reference.bootstrap;

import io.nccl4j.NcclException;
import io.nccl4j.NcclResult;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.spi.Contract;
import java.util.BitSet;

/**
 * The bootstrap of a grow, which ranks of the parent and new ranks join. The process endpoint of
 * the rank that created the id keeps it under the id until all ranks have joined or that rank has
 * left.
 */
public final class GrowBootstrap implements BootstrapTarget {
  private final Bootstraps bootstraps;
  private final BootstrapKey key;
  private UniqueId id;
  private int idCreator;
  private int size;
  private volatile Bootstrap bootstrap;
  private String failure;

  GrowBootstrap(Bootstraps bootstraps, BootstrapKey key) {
    this.bootstraps = bootstraps;
    this.key = key;
  }

  /** Returns a new id by which new ranks join. */
  public synchronized UniqueId newId(int rank) {
    if (id != null) {
      throw refused("rank " + idCreator + " has created an id whose grow has not been called");
    }
    id = InitBootstrap.newId(bootstraps.endpoint(), BootstrapKey.GROW);
    idCreator = rank;
    bootstraps.endpoint().open(id, this);
    return id;
  }

  /** Returns the bootstrap; the first rank that calls this determines the new size. */
  public synchronized Bootstrap bootstrap(int newSize) {
    if (bootstrap == null) {
      if (newSize <= bootstraps.parentSize()) {
        throw refused(
            "a rank expects "
                + newSize
                + " ranks; a grow needs more than the "
                + bootstraps.parentSize()
                + " of the communicator");
      }
      if (newSize > RankMap.MAX_RANKS) {
        throw refused(
            "a rank expects "
                + newSize
                + " ranks; the reference backend takes at most "
                + RankMap.MAX_RANKS);
      }
      size = newSize;
      BitSet expected = new BitSet();
      expected.set(0, newSize);
      Bootstrap opened = bootstraps.open(key, expected, this::onComplete);
      if (failure != null) {
        opened.fail(BootstrapFailure.of(failure));
      }
      bootstrap = opened;
    }
    if (newSize != size) {
      throw refused("a rank expects " + newSize + " ranks, the ranks before it " + size);
    }
    return bootstrap;
  }

  /** Returns the bootstrap if it has this size, else null. */
  synchronized Bootstrap knownBootstrap(int newSize) {
    return newSize == size ? bootstrap : null;
  }

  private void onComplete(boolean done) {
    if (done) {
      forget();
    }
  }

  void checkPresent() {
    Bootstrap current = bootstrap;
    if (current != null) {
      current.checkPresent();
    }
  }

  @Override
  public boolean grows() {
    return true;
  }

  @Override
  public void fail(String why) {
    Bootstrap current;
    synchronized (this) {
      failure = why;
      current = bootstrap;
    }
    // Outside the lock: a bootstrap that is done calls forget while it holds its own lock.
    if (current != null) {
      current.fail(BootstrapFailure.of(why));
    }
  }

  @Override
  public void addListener(JoinRequest request, Bootstrap.StateListener listener) {
    bootstrap(request.size()).addListener(listener);
  }

  @Override
  public Bootstrap admit(JoinRequest request, Deadline deadline) {
    if (!request.options().equals(bootstraps.options())) {
      throw refused(
          "the new rank has other options than the ranks before it: "
              + request.options()
              + ", "
              + bootstraps.options());
    }
    if (request.rank() < bootstraps.parentSize()) {
      throw refused(
          "rank "
              + request.rank()
              + " is a rank of the communicator; new ranks start at "
              + bootstraps.parentSize());
    }
    Bootstrap current = bootstrap(request.size());
    ProcessAddress process =
        request.process() != null ? request.process() : bootstraps.endpoint().address();
    current.arrive(new Bootstrap.MembershipRequest(request.rank(), 0, request.rank(), process));
    return current;
  }

  /** Closes the id and removes this from the unfinished bootstraps. */
  public void forget() {
    closeId();
    bootstraps.forget(key);
  }

  /** Closes the id, so that new ranks are refused; ranks of the parent can still join. */
  public synchronized void closeId() {
    if (id != null) {
      bootstraps.endpoint().close(id, this);
      bootstraps.endpoint().invalidate(ReferenceId.of(id).secret());
    }
  }

  private static NcclException refused(String text) {
    return Contract.get().failure(BootstrapKey.GROW, NcclResult.INVALID_USAGE.code(), text, "");
  }
}
