package io.nccl4j.plugin;

import io.nccl4j.Backend;
import io.nccl4j.Operation;
import java.time.Duration;

/** The program of {@code docs/guides/plugins.md}, which {@link PluginsTest} runs. */
public final class PluginsGuide {
  private static final int RANKS = 2;

  private PluginsGuide() {}

  /** Runs it, and waits for the last event. */
  public static void main(String[] arguments) throws InterruptedException {
    NcclEnvironment environment = new NcclEnvironment().set("NCCL_MAX_CTAS", 8);
    environment.install();
    NcclPlugins.addProfiler(
        event -> {
          if (event instanceof ProfilerEvent.Collective c) {
            System.out.println(c.function() + " " + c.count() + ": " + c.algorithm());
          }
        });
    NcclPlugins.addTuner(
        costs -> {
          if (costs.operation() == Operation.ALL_REDUCE
              && costs.usable(NcclAlgorithm.TREE, NcclProtocol.LL)) {
            costs.select(NcclAlgorithm.TREE, NcclProtocol.LL);
          }
        });
    try (Backend backend = Backend.nccl()) {
      train(backend);
    }
    System.out.println(environment.asked());
    System.out.println("all events: " + NcclPlugins.awaitEvents(Duration.ofMinutes(1)));
  }

  private static void train(Backend backend) {
    backend.runRanks(RANKS, PluginUser::communicate);
  }
}
