package io.nccl4j.plugin;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.internal.ffm.NativeLibrary;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * The program of {@link PluginsTest} and {@link OlderPluginsTest}: uses two ranks with all plugins,
 * and prints what rank 0's profiler has seen.
 */
public final class PluginUser {
  private static final int RANKS = 2;
  private static final int SMALL = 4;
  private static final int LARGE = 1 << 18;

  private PluginUser() {}

  /** Takes the plugin to install, {@code late}, or a number of communicators to use with all. */
  public static void main(String[] arguments) throws InterruptedException {
    try {
      switch (arguments[0]) {
        case "late" -> {
          NativeLibrary.NCCL.load();
          NcclPlugins.addProfiler(_ -> {});
        }
        case "profiler" -> NcclPlugins.addProfiler(_ -> {});
        case "tuner" -> NcclPlugins.addTuner(_ -> {});
        case "environment" -> new NcclEnvironment().install();
        default -> {
          useAll(Integer.parseInt(arguments[0]));
          return;
        }
      }
      Backend.nccl().close();
    } catch (IllegalStateException | NcclException e) {
      say(e.getMessage());
    }
  }

  private static void useAll(int communicators) throws InterruptedException {
    Queue<ProfilerEvent> events = new ConcurrentLinkedQueue<>();
    CountDownLatch destroyed = new CountDownLatch(RANKS * communicators);
    NcclPlugins.addProfiler(
        _ -> {
          throw new IllegalStateException("a profiler that always throws");
        });
    NcclPlugins.addProfiler(
        new Profiler() {
          @Override
          public void accept(ProfilerEvent event) {
            if (communicators == 1) {
              events.add(event);
            }
            if (event instanceof ProfilerEvent.CommunicatorDestroyed) {
              destroyed.countDown();
            }
          }

          @Override
          public boolean kernelTimes() {
            return true;
          }
        });
    NcclPlugins.addTuner(PluginUser::tune);
    NcclPlugins.addTuner(PluginUser::tuneBroadcastWrongly);
    NcclEnvironment environment = new NcclEnvironment().set("NCCL_COMM_BLOCKING", true);
    environment.install();
    try (Backend backend = Backend.nccl()) {
      for (int i = 0; i < communicators; i++) {
        backend.runRanks(RANKS, PluginUser::communicate);
      }
    }
    say("destroyed " + destroyed.await(60, TimeUnit.SECONDS));
    say("dropped " + NcclPlugins.droppedEvents());
    say("asked " + environment.asked().contains("NCCL_COMM_BLOCKING"));
    print(events);
  }

  /** Replaces rings by trees for large all-reduces. */
  private static void tune(CostTable costs) {
    if (costs.operation() == Operation.ALL_REDUCE && costs.bytes() >= 1 << 20) {
      if (costs.usable(NcclAlgorithm.NVLS, NcclProtocol.SIMPLE) || costs.ranks() != RANKS) {
        throw new AssertionError(costs.toString());
      }
      costs.select(NcclAlgorithm.TREE, NcclProtocol.SIMPLE);
      costs.channels(5);
    }
  }

  private static void tuneBroadcastWrongly(CostTable costs) {
    if (costs.operation() == Operation.BROADCAST) {
      costs.set(NcclAlgorithm.RING, NcclProtocol.LL, 1e9f);
      costs.select(NcclAlgorithm.PAT, NcclProtocol.LL);
    }
  }

  static void communicate(Communicator comm) {
    try (Stream stream = comm.newStream();
        Buffer small = comm.newBuffer(DataType.FLOAT32, SMALL);
        Buffer large = comm.newBuffer(DataType.FLOAT32, LARGE)) {
      small.copyFromAsync(new float[] {1, 2, 3, 4}, stream);
      comm.allReduce(small, small, ReduceOp.SUM, stream);
      comm.allReduce(large, large, ReduceOp.MAX, stream);
      comm.broadcast(small, small, 1, stream);
      if (comm.rank() == 0) {
        comm.send(small, 1, stream);
      } else {
        comm.recv(small, 0, stream);
      }
      float[] sums = new float[SMALL];
      small.copyTo(sums, stream);
      if (!Arrays.equals(new float[] {2, 4, 6, 8}, sums)) {
        throw new AssertionError(Arrays.toString(sums));
      }
    }
  }

  private static void print(Queue<ProfilerEvent> events) {
    Set<Long> operations = new HashSet<>();
    Set<Long> begun = new HashSet<>();
    Set<Long> kernels = new HashSet<>();
    for (ProfilerEvent event : events) {
      String line =
          switch (event) {
            case ProfilerEvent.CommunicatorCreated e ->
                line(e.rank(), "created of " + e.ranks() + " on " + e.nodes());
            case ProfilerEvent.CommunicatorDestroyed e -> line(e.rank(), "destroyed");
            case ProfilerEvent.Called e -> {
              begun.add(e.id());
              operations.add(e.id());
              yield line(e.rank(), "called", e.function(), e.count(), e.type(), e.root());
            }
            case ProfilerEvent.Collective e -> {
              expect(operations.contains(e.call()), e);
              begun.add(e.id());
              operations.add(e.id());
              yield line(
                  e.rank(),
                  "launched",
                  e.function(),
                  e.sequence(),
                  e.count(),
                  e.type(),
                  e.root(),
                  e.algorithm(),
                  e.protocol(),
                  e.channels());
            }
            case ProfilerEvent.PointToPoint e -> {
              expect(operations.contains(e.call()), e);
              begun.add(e.id());
              operations.add(e.id());
              yield line(e.rank(), "launched", e.function(), e.count(), e.type(), e.peer());
            }
            case ProfilerEvent.KernelStarted e -> {
              expect(e.timer() > 0 && e.channel() < 5 && operations.contains(e.operation()), e);
              begun.add(e.id());
              kernels.add(e.id());
              yield null;
            }
            case ProfilerEvent.KernelStopped e -> {
              expect(e.timer() > 0 && kernels.remove(e.id()), e);
              yield null;
            }
            case ProfilerEvent.Stopped e -> {
              expect(begun.remove(e.id()), e);
              yield null;
            }
          };
      if (line != null) {
        say(line);
      }
    }
    say("not stopped: " + begun.size() + ", kernels: " + kernels.size());
  }

  private static void expect(boolean condition, ProfilerEvent event) {
    if (!condition) {
      say("unexpected: " + event);
    }
  }

  /** Prints a line, which differs from those of the log. */
  private static void say(String line) {
    System.out.println("> " + line);
  }

  private static String line(int rank, Object... words) {
    return "rank "
        + rank
        + ": "
        + String.join(" ", List.of(words).stream().map(String::valueOf).toList());
  }
}
