package io.nccl4j.rendezvous;

import org.jspecify.annotations.NullMarked;

/** The launcher that started a process, detected from its environment. */
@NullMarked
public enum Launcher {
  /** A script that set {@code NCCL4J_RANK} and {@code NCCL4J_WORLD_SIZE}. */
  NCCL4J("NCCL4J_ variables"),
  /** PyTorch's {@code torchrun}: {@code RANK}, {@code WORLD_SIZE}, {@code TORCHELASTIC_RUN_ID}. */
  TORCHRUN("torchrun"),
  /** Anything that set {@code RANK} and {@code WORLD_SIZE}, such as a shell loop or an operator. */
  PLAIN("plain variables"),
  /** Open MPI's {@code mpirun}: {@code OMPI_COMM_WORLD_RANK}. */
  OPEN_MPI("Open MPI"),
  /** Hydra, the launcher of MPICH and its derivatives: {@code PMI_RANK}. */
  MPICH("MPICH"),
  /** Another launcher that supports PMIx: {@code PMIX_RANK}. */
  PMIX("PMIx"),
  /** Slurm's {@code srun}: {@code SLURM_PROCID}. */
  SLURM("Slurm"),
  /** An indexed job of Kubernetes: {@code JOB_COMPLETION_INDEX}. */
  KUBERNETES("Kubernetes"),
  /** None: a single process. */
  NONE("no launcher");

  private final String text;

  Launcher(String text) {
    this.text = text;
  }

  /** Returns the common name of the launcher. */
  @Override
  public String toString() {
    return text;
  }
}
