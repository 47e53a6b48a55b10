package io.nccl4j.rendezvous;

import io.nccl4j.internal.util.Loggers;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import org.apache.logging.log4j.Logger;

/**
 * The rank of this process and the number of ranks, according to its environment.
 *
 * <p>Launchers nest: torchrun runs inside a Slurm task, mpirun inside a batch script or a pod. The
 * innermost takes precedence; numbers that nesting cannot explain are an error.
 */
record ProcessRank(
    Launcher launcher, int rank, int size, OptionalInt localRank, OptionalInt localSize) {
  private static final Logger LOG = Loggers.of(ProcessRank.class);

  /** Variables that have no meaning without a rank. */
  private static final List<String> OF_SEVERAL_RANKS =
      List.of(
          RendezvousEndpoint.VARIABLE,
          "NCCL4J_LOCAL_RANK",
          "LOCAL_RANK",
          "MASTER_ADDR",
          "MASTER_PORT");

  /** Returns whether all ranks are known to be on one host. */
  boolean onOneHost() {
    return localSize.isPresent() && localSize.getAsInt() == size;
  }

  static ProcessRank in(LaunchVariables variables) {
    if (variables.has("NCCL4J_RANK")) {
      return own(variables).processRank();
    }
    Optional<LauncherRank> outer = mpiOrSlurm(variables);
    Optional<LauncherRank> kubernetes = kubernetes(variables);
    if (variables.has("TORCHELASTIC_RUN_ID")) {
      return plain(variables, Launcher.TORCHRUN).processRank();
    }
    if (variables.has("RANK")) {
      LauncherRank plain = plain(variables, Launcher.PLAIN);
      outer.ifPresent(plain::checkNestedIn);
      kubernetes.ifPresent(plain::checkNestedIn);
      return plain.processRank();
    }
    return outer
        .or(() -> kubernetes)
        .map(found -> found.withSizeFrom(variables).processRank())
        .orElseGet(() -> single(variables));
  }

  private static LauncherRank own(LaunchVariables variables) {
    return LauncherRank.of(
            variables,
            Launcher.NCCL4J,
            "NCCL4J_RANK",
            LauncherRank.OWN_SIZE,
            "NCCL4J_LOCAL_RANK",
            "NCCL4J_LOCAL_WORLD_SIZE")
        .orElseThrow();
  }

  private static LauncherRank plain(LaunchVariables variables, Launcher launcher) {
    return LauncherRank.of(
            variables, launcher, "RANK", LauncherRank.PLAIN_SIZE, "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        .orElseThrow(
            () ->
                new IllegalArgumentException(
                    "TORCHELASTIC_RUN_ID is set, but RANK and WORLD_SIZE are not; torchrun sets"
                        + " all three"));
  }

  private static Optional<LauncherRank> mpiOrSlurm(LaunchVariables variables) {
    Optional<LauncherRank> openMpi = openMpi(variables);
    Optional<LauncherRank> mpich = mpich(variables);
    Optional<LauncherRank> pmix = pmix(variables);
    Optional<LauncherRank> slurm = Slurm.launcherRank(variables);
    openMpi.ifPresent(found -> mpich.ifPresent(found::checkAgreesWith));
    Optional<LauncherRank> mpi = openMpi.or(() -> mpich);
    Optional<LauncherRank> sized = mpi.or(() -> slurm);
    pmix.ifPresent(found -> sized.ifPresent(found::checkAgreesWith));
    // srun also sets PMI's variables when it starts an MPI program itself.
    if (openMpi.isEmpty()
        && mpich.isPresent()
        && slurm.filter(mpich.get()::agreesWith).isPresent()) {
      return slurm;
    }
    return sized.or(() -> pmix);
  }

  private static Optional<LauncherRank> openMpi(LaunchVariables variables) {
    return LauncherRank.of(
        variables,
        Launcher.OPEN_MPI,
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE");
  }

  private static Optional<LauncherRank> mpich(LaunchVariables variables) {
    return LauncherRank.of(
        variables, Launcher.MPICH, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  }

  private static Optional<LauncherRank> pmix(LaunchVariables variables) {
    return LauncherRank.withoutSize(variables, Launcher.PMIX, "PMIX_RANK");
  }

  private static Optional<LauncherRank> kubernetes(LaunchVariables variables) {
    return LauncherRank.withoutSize(variables, Launcher.KUBERNETES, "JOB_COMPLETION_INDEX");
  }

  private static ProcessRank single(LaunchVariables variables) {
    for (String name : List.of(LauncherRank.OWN_SIZE, LauncherRank.PLAIN_SIZE)) {
      OptionalInt world = variables.number(name, 1);
      if (world.isPresent() && world.getAsInt() > 1) {
        String rank = name.replace("WORLD_SIZE", "RANK");
        throw new IllegalArgumentException(
            name + " is " + world.getAsInt() + ", but " + rank + " is not set");
      }
    }
    Slurm.checkNoTasks(variables);
    OF_SEVERAL_RANKS.stream()
        .filter(variables::has)
        .findFirst()
        .ifPresent(
            name ->
                LOG.warn(
                    "{} is set, but no variable has this process's rank, so it runs alone; if it is"
                        + " one of several, set RANK and WORLD_SIZE",
                    name));
    return new ProcessRank(Launcher.NONE, 0, 1, OptionalInt.of(0), OptionalInt.of(1));
  }
}
