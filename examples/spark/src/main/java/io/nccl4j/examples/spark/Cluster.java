package io.nccl4j.examples.spark;

import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkConf;

/** How Spark is to be set up for a stage of ranks, where the user has not said otherwise. */
final class Cluster {
  private static final Pattern EXECUTORS =
      Pattern.compile("local-cluster\\[\\s*([0-9]+)\\s*,\\s*([0-9]+)\\s*,\\s*[0-9]+\\s*]");

  private Cluster() {}

  /**
   * {@return Spark's settings, from spark-submit or system properties, and ours where those are
   * silent}
   *
   * @throws IllegalArgumentException if the settings cannot do what the flags ask for
   */
  static SparkConf settings(Flags flags) {
    SparkConf settings = new SparkConf();
    if (flags.master != null) {
      settings.setMaster(flags.master);
    }
    settings.setIfMissing("spark.master", "local-cluster[" + flags.ranks + ",1,1024]");
    settings.setIfMissing("spark.app.name", "nccl4j spark-fit");
    settings.setIfMissing("spark.ui.enabled", "false");
    // Else a rank that never comes to a gathering is waited for a year.
    settings.setIfMissing("spark.barrier.sync.timeout", flags.timeout + "s");
    settings.setIfMissing("spark.executor.extraJavaOptions", "--enable-native-access=ALL-UNNAMED");
    // Discovery scripts count as nvidia-smi does, CUDA by speed unless it is told.
    settings.setIfMissing("spark.executorEnv.CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    settings.setIfMissing("spark.scheduler.barrier.maxConcurrentTasksCheck.interval", "1s");
    String master = settings.get("spark.master");
    boolean here = master.startsWith("local");
    settings.setIfMissing(
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures",
        Integer.toString(here ? 2 : flags.timeout));
    Matcher executors = EXECUTORS.matcher(master);
    if (executors.matches()) {
      setExecutorsOfThisMachine(settings, executors);
    }
    check(settings, flags, here && !executors.matches());
    return settings;
  }

  private static void setExecutorsOfThisMachine(SparkConf settings, Matcher executors) {
    long slots = Long.parseLong(executors.group(1)) * Long.parseLong(executors.group(2));
    settings.setIfMissing("spark.cores.max", Long.toString(slots));
    // Ranks start when all executors have, however long that takes on a busy machine.
    settings.setIfMissing("spark.scheduler.minRegisteredResourcesRatio", "1.0");
    settings.setIfMissing("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s");
    settings.setIfMissing("spark.executor.extraClassPath", System.getProperty("java.class.path"));
  }

  private static void check(SparkConf settings, Flags flags, boolean oneProcess) {
    if (flags.killAt != null && oneProcess) {
      throw new IllegalArgumentException(
          "--kill-at would end this very process: --master "
              + settings.get("spark.master")
              + " has no executors of their own");
    }
    if (flags.backend == BackendChoice.NCCL
        && settings.get("spark.task.resource.gpu.amount", "0").equals("0")) {
      throw new IllegalArgumentException(
          "--backend nccl needs a GPU for each task, but spark.task.resource.gpu.amount is not set:"
              + " see examples/spark/README.md");
    }
  }
}
