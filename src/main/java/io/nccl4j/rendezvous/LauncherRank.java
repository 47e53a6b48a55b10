package io.nccl4j.rendezvous;

import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * Rank and size according to the variables of one launcher.
 *
 * @param rankVariable the variable with the rank, for messages
 * @param sizeVariable the variable with the size, for messages; empty if the launcher sets none
 */
record LauncherRank(
    Launcher launcher,
    String rankVariable,
    int rank,
    String sizeVariable,
    OptionalInt size,
    OptionalInt localRank,
    OptionalInt localSize) {
  static final String OWN_SIZE = "NCCL4J_WORLD_SIZE";
  static final String PLAIN_SIZE = "WORLD_SIZE";

  private static final String REMEDY =
      "; unset the variables of the launcher that did not start this process, or set NCCL4J_RANK"
          + " and "
          + OWN_SIZE
          + ", which override all others";

  /** Checks that the rank is less than the size. */
  LauncherRank {
    if (size.isPresent() && rank >= size.getAsInt()) {
      throw new IllegalArgumentException(
          "%s is %d and %s is %d; the rank must be less than the size"
              .formatted(rankVariable, rank, sizeVariable, size.getAsInt()));
    }
  }

  /** Reads the variables of a launcher that sets rank and size; empty if neither is set. */
  static Optional<LauncherRank> of(
      LaunchVariables variables,
      Launcher launcher,
      String rankVariable,
      String sizeVariable,
      String localRankVariable,
      String localSizeVariable) {
    OptionalInt rank = variables.number(rankVariable, 0);
    OptionalInt size = variables.number(sizeVariable, 1);
    if (rank.isEmpty() && size.isEmpty()) {
      return Optional.empty();
    }
    if (rank.isEmpty() || size.isEmpty()) {
      throw new IllegalArgumentException(
          rank.isEmpty()
              ? sizeVariable + " is " + size.getAsInt() + ", but " + rankVariable + " is not set"
              : rankVariable + " is " + rank.getAsInt() + ", but " + sizeVariable + " is not set");
    }
    OptionalInt localRank = variables.number(localRankVariable, 0);
    OptionalInt localSize = variables.number(localSizeVariable, 1);
    checkLocal(localRankVariable, localRank, localSizeVariable, localSize);
    checkLocal(localRankVariable, localRank, sizeVariable, size);
    if (localSize.isPresent() && localSize.getAsInt() > size.getAsInt()) {
      throw new IllegalArgumentException(
          "%s is %d and %s is %d; the local size must not exceed the size"
              .formatted(localSizeVariable, localSize.getAsInt(), sizeVariable, size.getAsInt()));
    }
    return Optional.of(
        new LauncherRank(
            launcher, rankVariable, rank.getAsInt(), sizeVariable, size, localRank, localSize));
  }

  private static void checkLocal(
      String rankVariable, OptionalInt rank, String sizeVariable, OptionalInt size) {
    if (rank.isPresent() && size.isPresent() && rank.getAsInt() >= size.getAsInt()) {
      throw new IllegalArgumentException(
          "%s is %d and %s is %d; the local rank must be less than the size"
              .formatted(rankVariable, rank.getAsInt(), sizeVariable, size.getAsInt()));
    }
  }

  /** Reads the variable of a launcher that sets only the rank. */
  static Optional<LauncherRank> withoutSize(
      LaunchVariables variables, Launcher launcher, String rankVariable) {
    OptionalInt rank = variables.number(rankVariable, 0);
    OptionalInt none = OptionalInt.empty();
    return rank.isEmpty()
        ? Optional.empty()
        : Optional.of(
            new LauncherRank(launcher, rankVariable, rank.getAsInt(), "", none, none, none));
  }

  ProcessRank processRank() {
    return new ProcessRank(launcher, rank, size.getAsInt(), localRank, localSize);
  }

  /**
   * Adds the size from a separate variable if the launcher sets none; sizes that are set must
   * agree.
   */
  LauncherRank withSizeFrom(LaunchVariables variables) {
    LauncherRank result = this;
    for (String name : List.of(OWN_SIZE, PLAIN_SIZE)) {
      OptionalInt world = variables.number(name, 1);
      if (world.isPresent() && result.size.isEmpty()) {
        result = new LauncherRank(launcher, rankVariable, rank, name, world, localRank, localSize);
      } else if (world.isPresent() && result.size.getAsInt() != world.getAsInt()) {
        throw new IllegalArgumentException(
            "%s is %d, but %s is %d%s"
                .formatted(
                    result.sizeVariable, result.size.getAsInt(), name, world.getAsInt(), REMEDY));
      }
    }
    if (result.size.isEmpty()) {
      throw new IllegalArgumentException(
          "%s is %d, but %s does not set the number of ranks; set %s"
              .formatted(rankVariable, rank, launcher, PLAIN_SIZE));
    }
    return result;
  }

  /** Returns whether the ranks are equal, and the sizes too if both are set. */
  boolean agreesWith(LauncherRank other) {
    boolean sameSize = size.isEmpty() || other.size.isEmpty() || size.equals(other.size);
    return rank == other.rank && sameSize;
  }

  void checkAgreesWith(LauncherRank other) {
    if (!agreesWith(other)) {
      throw contradiction(other);
    }
  }

  /**
   * Checks that this can be a rank started within a task of an outer launcher, where each task
   * starts equally many ranks, numbered in task order.
   */
  void checkNestedIn(LauncherRank outer) {
    boolean possible = agreesWith(outer);
    if (!possible && outer.size.isPresent()) {
      int perTask = size.getAsInt() / outer.size.getAsInt();
      possible =
          perTask > 1
              && perTask * outer.size.getAsInt() == size.getAsInt()
              && rank / perTask == outer.rank;
    } else if (!possible) {
      // Without the number of tasks only this can be checked.
      possible = outer.launcher == Launcher.KUBERNETES && rank >= outer.rank;
    }
    if (!possible) {
      throw contradiction(outer);
    }
  }

  private IllegalArgumentException contradiction(LauncherRank other) {
    return new IllegalArgumentException(
        describe() + ", but " + other.describe() + ": two launchers disagree" + REMEDY);
  }

  private String describe() {
    String text = rankVariable + " is " + rank;
    return size.isEmpty() ? text : text + " and " + sizeVariable + " is " + size.getAsInt();
  }
}
