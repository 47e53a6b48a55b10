package io.nccl4j.examples.spark;

import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkConf;

/** Spark's default settings for a stage of ranks, unless the user has set others. */
final class Cluster {
  private static final Pattern EXECUTORS =
      Pattern.compile("local-cluster\\[\\s*([0-9]+)\\s*,\\s*([0-9]+)\\s*,\\s*[0-9]+\\s*]");

  private Cluster() {}

  /**
   * {@return Spark's settings, from spark-submit or system properties, completed by our defaults}
   *
   * @throws IllegalArgumentException if the settings contradict the flags
   */
  static SparkConf settings(Flags flags) {
    SparkConf settings = new SparkConf();
    if (flags.master != null) {
      settings.setMaster(flags.master);
    }
    settings.setIfMissing("spark.master", "local-cluster[" + flags.ranks + ",1,1024]");
    settings.setIfMissing("spark.app.name", "nccl4j spark-fit");
    settings.setIfMissing("spark.ui.enabled", "false");
    // The default would wait a year for a missing rank.
    settings.setIfMissing("spark.barrier.sync.timeout", flags.timeout + "s");
    settings.setIfMissing("spark.executor.extraJavaOptions", "--enable-native-access=ALL-UNNAMED");
    // Discovery scripts number GPUs like nvidia-smi; CUDA orders them by speed by default.
    settings.setIfMissing("spark.executorEnv.CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    settings.setIfMissing("spark.scheduler.barrier.maxConcurrentTasksCheck.interval", "1s");
    String master = settings.get("spark.master");
    boolean local = master.startsWith("local");
    settings.setIfMissing(
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures",
        Integer.toString(local ? 2 : flags.timeout));
    Matcher executors = EXECUTORS.matcher(master);
    if (executors.matches()) {
      setLocalExecutors(settings, executors);
    }
    check(settings, flags, local && !executors.matches());
    return settings;
  }

  private static void setLocalExecutors(SparkConf settings, Matcher executors) {
    long slots = Long.parseLong(executors.group(1)) * Long.parseLong(executors.group(2));
    settings.setIfMissing("spark.cores.max", Long.toString(slots));
    // Ranks start when all executors have started, which takes long on a busy machine.
    settings.setIfMissing("spark.scheduler.minRegisteredResourcesRatio", "1.0");
    settings.setIfMissing("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s");
    settings.setIfMissing("spark.executor.extraClassPath", System.getProperty("java.class.path"));
  }

  private static void check(SparkConf settings, Flags flags, boolean oneProcess) {
    if (flags.killAt != null && oneProcess) {
      throw new IllegalArgumentException(
          "--kill-at would end the driver's process: --master "
              + settings.get("spark.master")
              + " has no separate executors");
    }
    if (flags.backend == BackendChoice.NCCL
        && settings.get("spark.task.resource.gpu.amount", "0").equals("0")) {
      throw new IllegalArgumentException(
          "--backend nccl needs a GPU for each task, but spark.task.resource.gpu.amount is not set:"
              + " see examples/spark/README.md");
    }
  }
}
