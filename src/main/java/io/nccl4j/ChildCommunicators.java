package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import io.nccl4j.spi.ChildMaker;
import io.nccl4j.spi.CommunicatorContext;
import io.nccl4j.spi.CommunicatorDriver;
import java.util.Collections;
import java.util.Objects;
import java.util.Set;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.function.BiFunction;
import java.util.function.Function;

/**
 * Validates splits, shrinks and grows of a communicator and creates the children, which are not
 * connected yet.
 */
final class ChildCommunicators implements ChildMaker {
  private final Backend backend;
  private final CommunicatorCore parent;

  ChildCommunicators(Backend backend, CommunicatorCore parent) {
    this.backend = backend;
    this.parent = parent;
  }

  @Override
  public Communicator split(
      int color,
      CommunicatorConfig config,
      Function<CommunicatorContext, CommunicatorDriver> driver) {
    checkSplit(color, config);
    return child(config, CommunicatorLineage.split(parent, color), driver);
  }

  Communicator splitNoColor() {
    int color = CommunicatorDriver.NO_COLOR;
    checkSplit(0, parent.config());
    return child(
        parent.config(),
        CommunicatorLineage.split(parent, color),
        child -> parent.driver().split(color, 0, child));
  }

  private void checkSplit(int color, CommunicatorConfig config) {
    parent.checkCanCreateChild();
    Arguments.atLeast(color, "color", 0);
    checkChild(config, "split");
    if (parent.growId().isPending()) {
      throw new IllegalStateException(
          "the id of newGrowId has not been used by a grow yet, and a split would invalidate it; call grow first: "
              + parent);
    }
  }

  @Override
  public Communicator shrink(
      Set<Integer> excludedRanks,
      ShrinkMode mode,
      CommunicatorConfig config,
      BiFunction<SortedSet<Integer>, CommunicatorContext, CommunicatorDriver> driver) {
    Objects.requireNonNull(mode, "mode");
    SortedSet<Integer> excluded = checkShrink(excludedRanks, config);
    if (excluded.isEmpty()) {
      throw new IllegalArgumentException(
          "excludedRanks is empty; a shrink must exclude at least one rank");
    }
    return child(
        config,
        CommunicatorLineage.shrink(parent, excluded),
        child -> driver.apply(excluded, child));
  }

  /** As a shrink, but may exclude no rank. */
  Communicator shrinkAfterFailure(
      SortedSet<Integer> excludedRanks,
      CommunicatorConfig config,
      Function<CommunicatorContext, CommunicatorDriver> driver) {
    SortedSet<Integer> excluded = checkShrink(excludedRanks, config);
    return child(config, CommunicatorLineage.shrink(parent, excluded), driver);
  }

  /** Returns a copy of the excluded ranks. */
  private SortedSet<Integer> checkShrink(Set<Integer> excludedRanks, CommunicatorConfig config) {
    parent.checkCanCreateChild();
    checkChild(config, "shrink");
    Objects.requireNonNull(excludedRanks, "excludedRanks");
    if (excludedRanks.stream().anyMatch(Objects::isNull)) {
      throw new NullPointerException("excludedRanks has a null element");
    }
    SortedSet<Integer> excluded = Collections.unmodifiableSortedSet(new TreeSet<>(excludedRanks));
    for (int rank : excluded) {
      Arguments.inRange(rank, "excluded rank", 0, parent.size() - 1);
      if (rank == parent.rank()) {
        throw new IllegalArgumentException(
            "excludedRanks has "
                + rank
                + ", this rank itself; only the remaining ranks call shrink");
      }
    }
    return excluded;
  }

  UniqueId newGrowId() {
    ThreadScope.checkNotCapturing("newGrowId");
    parent.checkConnected();
    return parent.growId().create(parent.driver()::newGrowId);
  }

  @Override
  public Communicator growWithId(
      int newSize,
      UniqueId id,
      CommunicatorConfig config,
      Function<CommunicatorContext, CommunicatorDriver> driver) {
    checkGrow(newSize, config);
    parent.growId().check(id);
    return child(config, CommunicatorLineage.grow(parent, id), driver);
  }

  @Override
  public Communicator grow(
      int newSize,
      CommunicatorConfig config,
      Function<CommunicatorContext, CommunicatorDriver> driver) {
    checkGrow(newSize, config);
    if (parent.growId().isPending()) {
      throw new IllegalStateException(
          "this rank created the id of the grow; pass it to grow: " + parent);
    }
    return child(config, CommunicatorLineage.grow(parent, null), driver);
  }

  private void checkGrow(int newSize, CommunicatorConfig config) {
    parent.checkConnected();
    checkChild(config, "grow");
    if (newSize <= parent.size()) {
      throw new IllegalArgumentException(
          "newSize is "
              + newSize
              + "; it must be more than the communicator's size, "
              + parent.size());
    }
  }

  private void checkChild(CommunicatorConfig config, String call) {
    ThreadScope.checkNotCapturing("making a communicator");
    Objects.requireNonNull(config, "childConfig");
    if (config.device().isPresent() && config.device().getAsInt() != parent.device()) {
      throw new IllegalArgumentException(
          "childConfig has device "
              + config.device().getAsInt()
              + "; a "
              + call
              + " keeps the parent's, "
              + parent.device());
    }
  }

  private Communicator child(
      CommunicatorConfig config,
      CommunicatorLineage lineage,
      Function<CommunicatorContext, CommunicatorDriver> driver) {
    return new Communicator(backend, config, parent.device(), -1, -1, lineage, driver);
  }
}
