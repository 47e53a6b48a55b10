package io.nccl4j.rendezvous;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.internal.util.Arguments;
import io.nccl4j.internal.util.CloseAll;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.function.Supplier;
import org.jspecify.annotations.NullMarked;

/**
 * This process's rank, the number of ranks, and the rendezvous to use, read from the environment
 * that the launcher set. Immutable.
 *
 * {@snippet :
 * try (Backend backend = Backend.auto()) {
 *   LaunchEnvironment.current().runRanks(backend, comm -> train(comm));
 * }
 * }
 *
 * <p><b>Rank and size</b> come from the first of these that is set: {@code NCCL4J_RANK} with {@code
 * NCCL4J_WORLD_SIZE} (and {@code NCCL4J_LOCAL_RANK}, {@code NCCL4J_LOCAL_WORLD_SIZE}), which
 * override everything; torchrun; {@code RANK} with {@code WORLD_SIZE}; Open MPI; MPICH (Hydra);
 * PMIx; Slurm; a Kubernetes indexed job. PMIx and Kubernetes do not set the size, so {@code
 * WORLD_SIZE} must be set too. With none of them there is one rank, except in a batch script of
 * Slurm with several tasks, which is an error. Launchers that disagree in a way that nesting cannot
 * explain are an error.
 *
 * <p><b>The rendezvous</b> is the first of these that applies:
 *
 * <ol>
 *   <li>{@code NCCL4J_RENDEZVOUS}: {@code file:/DIRECTORY}, with escapes such as {@code %20} as in
 *       a URI, or {@code tcp://HOST:PORT};
 *   <li>for a single rank, none;
 *   <li>under torchrun, where its agent owns {@code MASTER_PORT} ({@code
 *       TORCHELASTIC_USE_AGENT_STORE}, set except with some backends of torchrun's own rendezvous),
 *       the agent's store at {@code MASTER_ADDR}: see {@link Rendezvous#torchStore};
 *   <li>rank 0, at {@code MASTER_ADDR} and {@code MASTER_PORT};
 *   <li>under Open MPI, MPICH, PMIx or Slurm on one host, files in a private directory of this
 *       user, under the temporary directory;
 *   <li>under Slurm across hosts, a port, derived from job and step, of the step's first node,
 *       which has rank 0 unless tasks are distributed in another order;
 *   <li>otherwise an error, which says what to set.
 * </ol>
 *
 * <p>If rank 0 listens on a network, the ranks need a secret, at least 16 bytes, the same on all
 * ranks: in a file that {@code NCCL4J_SECRET_FILE} names, or in {@code NCCL4J_SECRET} itself; see
 * {@link Secret}. Without it only the loopback interface of this host is used, and a warning is
 * logged. In the store of torchrun's agent the secret hides the id from others that can reach the
 * store. {@link #jobId} separates this run from others.
 */
@NullMarked
public final class LaunchEnvironment {
  private final ProcessRank processRank;
  private final String jobId;
  private final RendezvousEndpoint endpoint;

  private LaunchEnvironment(ProcessRank processRank, String jobId, RendezvousEndpoint endpoint) {
    this.processRank = processRank;
    this.jobId = jobId;
    this.endpoint = endpoint;
  }

  /**
   * {@return the launch environment of this process}
   *
   * @throws IllegalArgumentException as {@link #from} does
   */
  public static LaunchEnvironment current() {
    return from(System.getenv());
  }

  /**
   * {@return the launch environment given by a process's environment variables}
   *
   * @param environment the variables by name
   * @throws IllegalArgumentException if a variable is invalid, a required one is missing, or two
   *     contradict each other; the message names variables and values
   */
  public static LaunchEnvironment from(Map<String, String> environment) {
    return from(environment, HydraProxy::ofThisProcess);
  }

  /**
   * Like {@link #from(Map)}, for tests.
   *
   * @param hydra identifies a run of MPICH's launcher, which sets no variable that does
   */
  static LaunchEnvironment from(Map<String, String> environment, Supplier<Optional<String>> hydra) {
    LaunchVariables variables = new LaunchVariables(copyOf(environment));
    ProcessRank processRank = ProcessRank.in(variables);
    String jobId =
        variables.text("NCCL4J_RUN_ID").orElseGet(() -> jobId(processRank, variables, hydra));
    Path temporary = Arguments.path(System.getProperty("java.io.tmpdir"), "java.io.tmpdir");
    return new LaunchEnvironment(
        processRank, jobId, RendezvousEndpoint.of(processRank, jobId, variables, temporary));
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
      ProcessRank processRank, LaunchVariables variables, Supplier<Optional<String>> hydra) {
    return switch (processRank.launcher()) {
      case TORCHRUN ->
          // Many run ids are 'none', but only one run at a time uses the agent's port.
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
          // Each host has its own proxy, so across hosts it does not identify the run.
          processRank.onOneHost() ? hydra.get().map(proxy -> "hydra " + proxy).orElse("") : "";
      case SLURM -> Slurm.jobId(variables);
      case NCCL4J, PLAIN, KUBERNETES, NONE -> "";
    };
  }

  /** {@return the launcher that started the process} */
  public Launcher launcher() {
    return processRank.launcher();
  }

  /** {@return this process's rank, from 0 to {@code size() - 1}} */
  public int rank() {
    return processRank.rank();
  }

  /** {@return the number of ranks, at least 1} */
  public int size() {
    return processRank.size();
  }

  /**
   * {@return the rank of this process within its host, from 0, if the launcher sets it} {@link
   * Rendezvous#newCommunicator} derives the device from it.
   */
  public OptionalInt localRank() {
    return processRank.localRank();
  }

  /** {@return the number of ranks on this process's host, if the launcher sets it} */
  public OptionalInt localSize() {
    return processRank.localSize();
  }

  /**
   * {@return the identifier that separates this run from others: {@code NCCL4J_RUN_ID}, else what
   * the launcher provides, such as torchrun's run id and port, PMIx's namespace, or Slurm's job and
   * step; empty if there is none}
   */
  public String jobId() {
    return jobId;
  }

  /** {@return a description of where the ranks exchange the id} */
  public String idSource() {
    return endpoint.toString();
  }

  /**
   * Runs the ranks of this process and returns when they have ended: the one rank that a launcher
   * has set, in the calling thread, or without a launcher a rank for each device, as {@link
   * Backend#runRanks} does.
   *
   * @param backend makes the communicators, with {@link CommunicatorConfig#defaults}
   * @param body runs one rank; its communicator is closed afterwards, or aborted if it fails
   * @param <X> the checked exception that {@code body} throws
   * @throws X the first failure of a rank
   * @throws IllegalArgumentException as {@link #rendezvous} does
   * @throws RendezvousException as {@link #rendezvous} and {@link Rendezvous#newCommunicator} do
   * @throws io.nccl4j.NcclException if a communicator cannot be made, or not all ranks arrive
   *     within {@link RankInfo#DEFAULT_TIMEOUT}
   * @throws IllegalStateException if the backend is closed, or this thread has a group open or is
   *     capturing a graph
   */
  public <X extends Exception> void runRanks(Backend backend, Backend.RankBody<X> body) throws X {
    runRanks(backend, body, CommunicatorConfig.defaults());
  }

  /**
   * Runs the ranks of this process, as {@link #runRanks(Backend, Backend.RankBody)} does.
   *
   * @param backend makes the communicators
   * @param body runs one rank; its communicator is closed afterwards, or aborted if it fails
   * @param config timeout, name and whether blocking
   * @param <X> the checked exception that {@code body} throws
   * @throws X the first failure of a rank
   * @throws IllegalArgumentException as {@link #rendezvous} does
   * @throws RendezvousException as {@link #rendezvous} and {@link Rendezvous#newCommunicator} do
   * @throws io.nccl4j.NcclException if a communicator cannot be made, or not all ranks arrive
   *     within {@link RankInfo#DEFAULT_TIMEOUT}
   * @throws IllegalStateException if the backend is closed, or this thread has a group open or is
   *     capturing a graph
   */
  public <X extends Exception> void runRanks(
      Backend backend, Backend.RankBody<X> body, CommunicatorConfig config) throws X {
    Objects.requireNonNull(backend, "backend");
    Objects.requireNonNull(body, "body");
    Objects.requireNonNull(config, "config");
    if (launcher() == Launcher.NONE) {
      backend.runRanks(backend.devices().size(), body, config);
      return;
    }
    try (Rendezvous rendezvous = rendezvous(RankInfo.DEFAULT_TIMEOUT);
        Communicator communicator = rendezvous.newCommunicator(backend, config)) {
      try {
        body.run(communicator);
      } catch (Throwable failure) {
        // Its close would wait for the peers.
        CloseAll.after(failure, communicator::abort);
        throw failure;
      }
    }
  }

  /**
   * {@return this rank's rendezvous, for the caller to close}
   *
   * @param timeout the timeout of one exchange; positive
   * @throws IllegalArgumentException if the environment does not determine a rendezvous, or a
   *     required secret is not set or too short
   * @throws RendezvousException if the directory cannot be created, or the port is in use
   */
  public Rendezvous rendezvous(Duration timeout) {
    Objects.requireNonNull(timeout, "timeout");
    return endpoint.open(new RankInfo(rank(), size(), jobId, timeout, localRank()));
  }

  @Override
  public String toString() {
    return "LaunchEnvironment[rank "
        + rank()
        + " of "
        + size()
        + (localRank().isPresent() ? ", local rank " + localRank().getAsInt() : "")
        + (localSize().isPresent() ? " of " + localSize().getAsInt() : "")
        + ", started by "
        + launcher()
        + ", id from "
        + endpoint
        + "]";
  }
}
