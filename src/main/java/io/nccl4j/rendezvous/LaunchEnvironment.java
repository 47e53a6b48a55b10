package io.nccl4j.rendezvous;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.function.Supplier;

/**
 * How this process was started, by the environment that its launcher left: which rank of how many,
 * and where the ranks meet. Immutable.
 *
 * <p><b>Rank and size</b> come from the first of these that is set: {@code NCCL4J_RANK} with {@code
 * NCCL4J_WORLD_SIZE} (and {@code NCCL4J_LOCAL_RANK}, {@code NCCL4J_LOCAL_WORLD_SIZE}), which
 * overrule everything; torchrun; {@code RANK} with {@code WORLD_SIZE}; Open MPI; MPICH (Hydra);
 * PMIx; Slurm; a Kubernetes indexed job. PMIx and Kubernetes tell no size: {@code WORLD_SIZE} must.
 * With none of them there is one rank. Launchers that disagree in a way that nesting cannot explain
 * are an error.
 *
 * <p><b>Where the ranks meet</b> is, the first that applies:
 *
 * <ol>
 *   <li>{@code NCCL4J_RENDEZVOUS}: {@code file:/DIRECTORY}, in which {@code %20} and the like stand
 *       for the characters that they do in a URI, or {@code tcp://HOST:PORT};
 *   <li>nowhere, for one rank;
 *   <li>under torchrun, where its agent owns {@code MASTER_PORT} ({@code
 *       TORCHELASTIC_USE_AGENT_STORE}, as it does but for some backends of torchrun's own
 *       rendezvous), the agent's store at {@code MASTER_ADDR}: see {@link TorchStoreRendezvous};
 *   <li>rank 0, at {@code MASTER_ADDR} and {@code MASTER_PORT};
 *   <li>under Open MPI, MPICH, PMIx or Slurm on one host, files in a directory of this user alone,
 *       under the temporary directory;
 *   <li>under Slurm across hosts, a port, derived from job and step, of the step's first node,
 *       where rank 0 is unless tasks are distributed in another order;
 *   <li>otherwise an error, which says what to set.
 * </ol>
 *
 * <p>Where rank 0 listens on a network the ranks need a secret: {@code NCCL4J_SECRET}, 16 bytes or
 * more, the same on all ranks. Without it only this host's loopback interface is used, and a
 * warning logged. In the store of torchrun's agent it hides the id from others that reach it. What
 * tells this run from others is {@code NCCL4J_RUN_ID}, else what the launcher has: see {@link
 * #jobId}.
 */
public final class LaunchEnvironment {
  private final ProcessRank processRank;
  private final String jobId;
  private final RendezvousEndpoint source;

  private LaunchEnvironment(ProcessRank placement, String run, RendezvousEndpoint source) {
    this.processRank = placement;
    this.jobId = run;
    this.source = source;
  }

  /**
   * {@return how this process was started}
   *
   * @throws IllegalArgumentException as {@link #from} does
   */
  public static LaunchEnvironment current() {
    return from(System.getenv());
  }

  /**
   * {@return how a process with such an environment was started}
   *
   * @param environment the variables by name
   * @throws IllegalArgumentException if a variable is not what it must be, is missing beside
   *     another, or contradicts another; the message names variables and values
   */
  public static LaunchEnvironment from(Map<String, String> environment) {
    return from(environment, HydraProxy::ofThisProcess);
  }

  /**
   * Does what {@link #from(Map)} promises.
   *
   * @param hydra tells what names the run of MPICH's launcher, which leaves no such variable
   */
  static LaunchEnvironment from(Map<String, String> environment, Supplier<Optional<String>> hydra) {
    LaunchVariables variables = new LaunchVariables(copyOf(environment));
    ProcessRank processRank = ProcessRank.in(variables);
    String run =
        variables.text("NCCL4J_RUN_ID").orElseGet(() -> jobId(processRank, variables, hydra));
    Path temporary = Path.of(System.getProperty("java.io.tmpdir"));
    return new LaunchEnvironment(
        processRank, run, RendezvousEndpoint.of(processRank, run, variables, temporary));
  }

  private static Map<String, String> copyOf(Map<String, String> environment) {
    Objects.requireNonNull(environment, "environment")
        .forEach(
            (name, value) -> {
              Objects.requireNonNull(name, "environment has a null name");
              Objects.requireNonNull(value, () -> "environment has a null value, of " + name);
            });
    return Map.copyOf(environment);
  }

  private static String jobId(
      ProcessRank placement, LaunchVariables variables, Supplier<Optional<String>> hydra) {
    return switch (placement.launcher()) {
      case TORCHRUN ->
          // Many runs are called 'none', but only one at a time has the agent's port.
          "torchrun "
              + variables.text("TORCHELASTIC_RUN_ID").orElse("")
              + " "
              + variables.text("MASTER_ADDR").orElse("")
              + ":"
              + variables.text("MASTER_PORT").orElse("");
      case OPEN_MPI, PMIX ->
          variables
              .text(variables.firstSet("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"))
              .map(job -> "pmix " + job)
              .orElse("");
      case MPICH ->
          // Each host has a proxy of its own, so across hosts it does not name the run.
          placement.onOneHost() ? hydra.get().map(proxy -> "hydra " + proxy).orElse("") : "";
      case SLURM -> Slurm.jobId(variables);
      case NCCL4J, PLAIN, KUBERNETES, NONE -> "";
    };
  }

  /** {@return what started the process} */
  public Launcher launcher() {
    return processRank.launcher();
  }

  /** {@return this process's rank, from 0 to {@code size() - 1}} */
  public int rank() {
    return processRank.rank();
  }

  /** {@return the number of ranks; 1 or more} */
  public int size() {
    return processRank.size();
  }

  /**
   * {@return this process's number among those on its host, from 0 on, if the launcher tells it}
   * {@link Rendezvous#newCommunicator} takes the device from it.
   */
  public OptionalInt localRank() {
    return processRank.localRank();
  }

  /** {@return how many ranks are on this process's host, if the launcher tells it} */
  public OptionalInt localSize() {
    return processRank.localSize();
  }

  /**
   * {@return what tells this run from others: {@code NCCL4J_RUN_ID}, else such as torchrun's run id
   * and port, PMIx's namespace, or Slurm's job and step; an empty text if there is nothing}
   */
  public String jobId() {
    return jobId;
  }

  /** {@return where the ranks meet, for people to read} */
  public String idSource() {
    return source.toString();
  }

  /**
   * {@return this rank's place where the ranks meet, for the caller to close}
   *
   * @param timeout the longest that one exchange may take; positive
   * @throws IllegalArgumentException if the environment does not tell where the ranks meet, or a
   *     secret is needed that is not set or too short
   * @throws RendezvousException if the place cannot be used: a directory that cannot be made, a
   *     port that is taken
   */
  public Rendezvous rendezvous(Duration timeout) {
    Objects.requireNonNull(timeout, "timeout");
    return source.open(new RankInfo(rank(), size(), jobId, timeout, localRank()));
  }

  @Override
  public String toString() {
    return "Launch[rank "
        + rank()
        + " of "
        + size()
        + (localRank().isPresent() ? ", local rank " + localRank().getAsInt() : "")
        + (localSize().isPresent() ? " of " + localSize().getAsInt() : "")
        + ", started by "
        + launcher()
        + ", id from "
        + source
        + "]";
  }
}
