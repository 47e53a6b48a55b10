package io.nccl4j.spi;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.ShrinkMode;
import io.nccl4j.UniqueId;
import java.util.Set;
import java.util.SortedSet;
import java.util.function.BiFunction;
import java.util.function.Function;

/**
 * Creates child communicators as the methods of {@link Communicator} do, but with a driver that the
 * caller provides, and without connecting them.
 */
public interface ChildMaker {
  /** Takes part in a split with a color, which is 0 or more. */
  Communicator split(
      int color,
      CommunicatorConfig config,
      Function<CommunicatorContext, CommunicatorDriver> driver);

  /** Takes part in a shrink; the driver gets a copy of the excluded ranks. */
  Communicator shrink(
      Set<Integer> excludedRanks,
      ShrinkMode mode,
      CommunicatorConfig config,
      BiFunction<SortedSet<Integer>, CommunicatorContext, CommunicatorDriver> driver);

  /** Takes part in a grow, on the rank that created the id. */
  Communicator growWithId(
      int newSize,
      UniqueId id,
      CommunicatorConfig config,
      Function<CommunicatorContext, CommunicatorDriver> driver);

  /** Takes part in a grow, on a rank that did not create the id. */
  Communicator grow(
      int newSize,
      CommunicatorConfig config,
      Function<CommunicatorContext, CommunicatorDriver> driver);
}
