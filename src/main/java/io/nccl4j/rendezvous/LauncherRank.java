package io.nccl4j.rendezvous;

import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * What the variables of one launcher say.
 *
 * @param rankVariable where the rank comes from, for messages
 * @param sizeVariable where the size comes from, for messages; empty if this launcher tells none
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
      "; unset the variables of what did not start this process, or set NCCL4J_RANK and "
          + OWN_SIZE
          + ", which overrule all others";

  /** Checks the numbers against each other. */
  LauncherRank {
    if (size.isPresent() && rank >= size.getAsInt()) {
      throw new IllegalArgumentException(
          "%s is %d and %s is %d; the rank must be less than the size"
              .formatted(rankVariable, rank, sizeVariable, size.getAsInt()));
    }
  }

  /** Returns what a launcher says that sets rank and size; nothing if it has set neither. */
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
          "%s is %d and %s is %d; a host cannot have more ranks than there are"
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
          "%s is %d and %s is %d; the local rank must be less"
              .formatted(rankVariable, rank.getAsInt(), sizeVariable, size.getAsInt()));
    }
  }

  /** Returns what a launcher says that sets a rank alone. */
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

  /** Takes a size that was set alone, for launchers that tell none; it must agree with others. */
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
          "%s is %d, but %s does not tell how many ranks there are; set %s"
              .formatted(rankVariable, rank, launcher, PLAIN_SIZE));
    }
    return result;
  }

  /** Returns whether both say the same, as far as both say something. */
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
   * Checks that this can be one of the ranks into which a task of an outer launcher was split: each
   * task into equally many, in the order of the tasks.
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
      // Without the number of tasks this is all that can be said.
      possible = outer.launcher == Launcher.KUBERNETES && rank >= outer.rank;
    }
    if (!possible) {
      throw contradiction(outer);
    }
  }

  private IllegalArgumentException contradiction(LauncherRank other) {
    return new IllegalArgumentException(
        said() + ", but " + other.said() + ": two launchers disagree" + REMEDY);
  }

  private String said() {
    String text = rankVariable + " is " + rank;
    return size.isEmpty() ? text : text + " and " + sizeVariable + " is " + size.getAsInt();
  }
}
