package io.nccl4j.emulation;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.plugin.CostTable;
import io.nccl4j.plugin.NcclAlgorithm;
import io.nccl4j.plugin.NcclEnvironment;
import io.nccl4j.plugin.NcclPlugins;
import io.nccl4j.plugin.NcclProtocol;
import io.nccl4j.plugin.Profiler;
import io.nccl4j.plugin.ProfilerEvent;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * The program of {@link EmulatedPluginsTest}: two ranks that repeat a small and a large all-reduce
 * with plugins. Also measures what a profiler costs.
 */
public final class PluggedRanks {
  private static final int RANKS = 2;
  private static final int LARGE = 1 << 18;
  private static final int BATCH = 100;
  private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

  private PluggedRanks() {}

  /**
   * Takes the plugins ({@code none}, {@code profiler}, {@code kernels} or {@code all}) and the
   * number of rounds.
   */
  public static void main(String[] arguments) throws InterruptedException {
    String plugins = arguments[0];
    int rounds = Integer.parseInt(arguments[1]);
    CountDownLatch destroyed = new CountDownLatch(plugins.equals("none") ? 0 : RANKS);
    NcclEnvironment environment = new NcclEnvironment();
    if (!plugins.equals("none")) {
      NcclPlugins.addProfiler(profiler(destroyed, !plugins.equals("profiler"), plugins.equals("all")));
    }
    if (plugins.equals("all")) {
      NcclPlugins.addTuner(PluggedRanks::tune);
      environment.set("NCCL_PROTO", "^LL128").install();
    }
    try (Backend backend = Backend.nccl()) {
      backend.runRanks(RANKS, comm -> communicate(comm, rounds));
    }
    say("destroyed " + destroyed.await(60, TimeUnit.SECONDS));
    say("dropped " + NcclPlugins.droppedEvents());
    environment.asked().forEach(name -> say("asked " + name));
    // NCCL's exit handlers run when Java has stopped; none may wait for a thread that Java must let go.
    System.exit(0);
  }

  private static Profiler profiler(CountDownLatch destroyed, boolean kernels, boolean prints) {
    return new Profiler() {
      @Override
      public void accept(ProfilerEvent event) {
        switch (event) {
          case ProfilerEvent.CommunicatorDestroyed _ -> destroyed.countDown();
          case ProfilerEvent.Collective c when prints && c.rank() == 0 ->
              say(c.function() + " " + c.count() + " " + c.algorithm() + " " + c.protocol());
          case ProfilerEvent.KernelStarted k when prints ->
              say("kernel of channel " + k.channel() + " begun");
          case ProfilerEvent.KernelStopped _ when prints -> say("kernel ended");
          default -> {}
        }
      }

      @Override
      public boolean kernelTimes() {
        return kernels;
      }
    };
  }

  private static void tune(CostTable costs) {
    if (costs.operation() == Operation.ALL_REDUCE && costs.bytes() >= LARGE) {
      float ring = costs.microseconds(NcclAlgorithm.RING, NcclProtocol.SIMPLE);
      say("ring is cheaper: " + (ring < costs.microseconds(NcclAlgorithm.TREE, NcclProtocol.SIMPLE)));
      costs.select(NcclAlgorithm.TREE, NcclProtocol.SIMPLE);
    }
  }

  private static void communicate(Communicator comm, int rounds) {
    try (Stream stream = comm.newStream();
        Buffer small = comm.newBuffer(DataType.FLOAT32, 1);
        Buffer large = comm.newBuffer(DataType.FLOAT32, LARGE)) {
      comm.allReduce(large, large, ReduceOp.SUM, stream);
      float[] sum = {1};
      small.copyFromAsync(sum, stream);
      stream.synchronize();
      long calling = 0;
      for (int round = 1; round <= rounds; round++) {
        long before = THREADS.getCurrentThreadCpuTime();
        comm.allReduce(small, small, ReduceOp.MAX, stream);
        if (round > rounds / 2) {
          calling += THREADS.getCurrentThreadCpuTime() - before;
        }
        if (round % BATCH == 0) {
          stream.synchronize();
        }
      }
      small.copyTo(sum, stream);
      if (comm.rank() == 0) {
        say("maximum " + sum[0]);
        System.out.printf("%.1f us of processor time in a call%n", calling / 500.0 / rounds);
      }
    }
  }

  /** Prints a line, which differs from those of the log. */
  private static void say(String line) {
    System.out.println("> " + line);
  }
}
