package io.nccl4j.rendezvous;

import io.nccl4j.internal.rendezvous.Token;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.internal.util.PortRange;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.logging.log4j.Logger;

/** Reads Slurm's environment variables. */
final class Slurm {
  private static final Logger LOG = Loggers.of(Slurm.class);

  private static final Pattern TASKS = Pattern.compile("(\\d+)(?:\\(x(\\d+)\\))?");
  private static final List<String> TASK_COUNTS =
      List.of(
          "SLURM_NTASKS",
          "SLURM_NPROCS",
          "SLURM_NTASKS_PER_NODE",
          "SLURM_JOB_NUM_NODES",
          "SLURM_NNODES");
  private static final int FIRST_PORT = 16384;
  private static final int PORTS = 16384;

  private Slurm() {}

  /** Returns the rank that Slurm set, if this process is a task of a step. */
  static Optional<LauncherRank> launcherRank(LaunchVariables variables) {
    if (!variables.has("SLURM_PROCID") || inBatchScript(variables)) {
      return Optional.empty();
    }
    String size = variables.firstSet("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS");
    return LauncherRank.of(variables, Launcher.SLURM, "SLURM_PROCID", size, "SLURM_LOCALID", "")
        .map(found -> withLocalSize(found, variables));
  }

  /** The batch script itself has the variables of a first task, but belongs to no step. */
  private static boolean inBatchScript(LaunchVariables variables) {
    return variables.has("SLURM_JOB_ID")
        && !variables.has("SLURM_STEP_ID")
        && !variables.has("SLURM_STEPID")
        && variables.number("SLURM_PROCID", 0).orElse(-1) == 0;
  }

  /**
   * Checks a process without a rank: in a job of several tasks, only srun or another launcher
   * starts these.
   *
   * @throws IllegalArgumentException in a batch script; a shell of the job only gets a warning
   */
  static void checkNoTasks(LaunchVariables variables) {
    // Outside a job these are srun's options, which may also be ranges.
    if (!variables.has("SLURM_JOB_ID")) {
      return;
    }
    for (String name : TASK_COUNTS) {
      OptionalInt count = variables.number(name, 1);
      if (count.orElse(1) > 1) {
        String text =
            name
                + " is "
                + count.getAsInt()
                + ", but SLURM_STEP_ID is not set: this is the job's script or shell, not one of its"
                + " tasks; start the program with srun or mpirun, or, for this process alone, set"
                + " NCCL4J_RANK=0 and NCCL4J_WORLD_SIZE=1";
        if (inBatchScript(variables)) {
          throw new IllegalArgumentException(text);
        }
        LOG.warn(text);
        return;
      }
    }
  }

  private static LauncherRank withLocalSize(LauncherRank found, LaunchVariables variables) {
    return new LauncherRank(
        found.launcher(),
        found.rankVariable(),
        found.rank(),
        found.sizeVariable(),
        found.size(),
        found.localRank(),
        localSize(found, variables));
  }

  private static OptionalInt localSize(LauncherRank found, LaunchVariables variables) {
    OptionalInt nodes =
        variables.number(variables.firstSet("SLURM_STEP_NUM_NODES", "SLURM_NNODES"), 1);
    if (nodes.isPresent() && nodes.getAsInt() == 1) {
      return found.size();
    }
    Optional<String> tasks = variables.text("SLURM_STEP_TASKS_PER_NODE");
    OptionalInt node = variables.number("SLURM_NODEID", 0);
    if (tasks.isEmpty() || node.isEmpty()) {
      return OptionalInt.empty();
    }
    return tasksOfNode(tasks.get(), node.getAsInt());
  }

  /** Parses a list like {@code 4(x2),3}: four tasks on each of two nodes, three on the next. */
  static OptionalInt tasksOfNode(String tasksPerNode, int node) {
    int seen = 0;
    for (String part : tasksPerNode.split(",", -1)) {
      Matcher matcher = TASKS.matcher(part.strip());
      if (!matcher.matches() || part.length() > 20) {
        throw new IllegalArgumentException(
            "SLURM_STEP_TASKS_PER_NODE is '" + tasksPerNode + "'; it must be like '4(x2),3'");
      }
      seen += matcher.group(2) == null ? 1 : Integer.parseInt(matcher.group(2));
      if (node < seen) {
        return OptionalInt.of(Integer.parseInt(matcher.group(1)));
      }
    }
    throw new IllegalArgumentException(
        "SLURM_NODEID is "
            + node
            + ", but SLURM_STEP_TASKS_PER_NODE '"
            + tasksPerNode
            + "' has only "
            + seen
            + " nodes");
  }

  /** Returns an identifier of the step, unique in its cluster, or an empty text. */
  static String jobId(LaunchVariables variables) {
    String step = variables.firstSet("SLURM_STEP_ID", "SLURM_STEPID");
    return variables
        .text(variables.firstSet("SLURM_JOB_ID", "SLURM_JOBID"))
        .map(job -> "slurm " + job + "." + variables.text(step).orElse("batch"))
        .orElse("");
  }

  /**
   * Returns the first node, which has rank 0 unless tasks are distributed in another order than
   * Slurm's default.
   */
  static Optional<String> firstNode(LaunchVariables variables) {
    return variables
        .text(variables.firstSet("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"))
        .map(Slurm::firstOf);
  }

  /** Returns the first name of a node list: {@code gpu07} of {@code gpu[07-09,12],login1}. */
  static String firstOf(String nodeList) {
    StringBuilder name = new StringBuilder();
    boolean skipping = false;
    boolean inBrackets = false;
    for (char c : nodeList.strip().toCharArray()) {
      if (c == '[') {
        inBrackets = true;
      } else if (c == ']') {
        inBrackets = false;
        skipping = false;
      } else if (c == ',' && !inBrackets) {
        break;
      } else if (inBrackets && (c == ',' || c == '-')) {
        skipping = true;
      } else if (!skipping) {
        name.append(c);
      }
    }
    return name.toString();
  }

  /** Returns a port for a step, of the given range, else below the range of ephemeral ports. */
  static int port(String jobId, Optional<PortRange> ports) {
    int first = ports.map(PortRange::first).orElse(FIRST_PORT);
    int count = ports.map(PortRange::size).orElse(PORTS);
    return first + (int) Math.floorMod(Token.ofText(jobId).low(), (long) count);
  }
}
