package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CommunicatorList;
import io.nccl4j.DataType;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.ReduceOp;
import io.nccl4j.StatisticsMXBean;
import io.nccl4j.Stream;
import io.nccl4j.internal.util.Deadline;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import javax.management.JMException;
import javax.management.JMX;
import javax.management.MBeanServer;
import javax.management.ObjectName;

/** The program of {@link StatisticsTest}: two ranks, and what JMX shows of them. */
public final class ObservedProgram {
  private static final Duration REGISTERED_WITHIN = Duration.ofSeconds(30);

  private ObservedProgram() {}

  /** What an agent does. Apart, since the program must also run without the classes of JMX. */
  private static final class Agent {
    private final MBeanServer server = ManagementFactory.getPlatformMBeanServer();
    private final ObjectName name;
    private final StatisticsMXBean statistics;

    Agent() throws JMException {
      name = new ObjectName("io.nccl4j:type=Statistics");
      statistics = JMX.newMXBeanProxy(server, name, StatisticsMXBean.class);
    }

    void awaitBean() throws InterruptedException {
      Deadline deadline = Deadline.after(REGISTERED_WITHIN);
      while (!server.isRegistered(name) && !deadline.passed()) {
        Thread.sleep(10);
      }
    }

    void print() {
      statistics.getCommunicators().forEach(Agent::print);
      System.out.printf(
          "%d communicators, %d streams, %d graphs, %d buffers of %d bytes%n",
          statistics.getOpenCommunicators(),
          statistics.getOpenStreams(),
          statistics.getOpenGraphs(),
          statistics.getOpenBuffers(),
          statistics.getOpenBufferBytes());
      System.out.printf(
          "%d operations of %d bytes, %d waits, %s, %d time-outs, %d failures%n",
          statistics.getOperations(),
          statistics.getBytes(),
          statistics.getWaits(),
          statistics.getWaitMillis() < 200 ? "short" : "long",
          statistics.getTimeouts(),
          statistics.getFailures());
    }

    void dump() throws IOException {
      Path folder = Files.createTempDirectory("nccl4j-dumps-");
      List<String> dumps = statistics.dumpOperations(folder.toString());
      for (String file : dumps.stream().sorted().toList()) {
        System.out.println("dump" + file.replaceFirst(".*/nccl4j_[0-9a-f]+", ""));
        Files.delete(Path.of(file));
        Files.delete(Path.of(file.replace("/nccl4j_", "/") + ".json"));
      }
      Files.delete(folder);
      try {
        statistics.dumpOperations("dumps");
        System.out.println("a relative path was accepted");
      } catch (IllegalArgumentException e) {
        System.out.println(e.getMessage());
      }
    }

    private static void print(String key, StatisticsMXBean.CommunicatorStatistics one) {
      if (!key.equals(one.communicator() + " rank " + one.rank())) {
        throw new IllegalStateException(key + " is the key of " + one);
      }
      System.out.printf(
          "%s: rank %d of %d, %s, %s, %d operations of %d bytes%n",
          one.name(),
          one.rank(),
          one.ranks(),
          one.device(),
          one.state(),
          one.operations(),
          one.bytes());
    }
  }

  /**
   * Runs the program.
   *
   * @param arguments the backend; and whether an agent is there from the start ({@code early}), is
   *     attached later ({@code late}) or never ({@code none})
   */
  public static void main(String[] arguments) throws Exception {
    String attached = arguments[1];
    Agent agent = attached.equals("early") ? new Agent() : null;
    try (Backend backend = arguments[0].equals("nccl") ? Backend.nccl() : Backend.reference(2)) {
      if (attached.equals("late")) {
        agent = new Agent();
        agent.awaitBean();
      }
      run(backend, agent);
    }
    if (agent != null) {
      System.out.println(agent.server.isRegistered(agent.name) ? "left" : "removed");
    }
  }

  private static void run(Backend backend, Agent agent) throws IOException {
    CommunicatorConfig config = CommunicatorConfig.defaults().withName("train");
    try (CommunicatorList comms = backend.newCommunicators(new int[] {0, 1}, config);
        Stream first = comms.get(0).newStream();
        Stream second = comms.get(1).newStream();
        Buffer ours = comms.get(0).newBuffer(DataType.INT32, 4);
        Buffer theirs = comms.get(1).newBuffer(DataType.INT32, 4);
        Buffer start = ours.slice(0, 2);
        Buffer end = theirs.slice(2, 2)) {
      Runnable sums =
          () ->
              Group.run(
                  () -> {
                    comms.get(0).allReduce(ours, ours, ReduceOp.SUM, first);
                    comms.get(1).allReduce(theirs, theirs, ReduceOp.SUM, second);
                  });
      sums.run();
      Group.run(
          () -> {
            comms.get(0).send(start, 1, first);
            comms.get(1).recv(end, 0, second);
          });
      synchronize(first, second);
      List<Graph> graphs = Graph.capture(List.of(first, second), sums);
      for (int i = 0; i < 2; i++) {
        graphs.get(0).launch(first);
        graphs.get(1).launch(second);
      }
      synchronize(first, second);
      Buffer wrapped = Buffer.ofHostSegment(Arena.ofAuto().allocate(4), DataType.INT32, 1);
      print(agent);
      if (agent != null) {
        agent.dump();
      }
      wrapped.close();
      graphs.forEach(Graph::close);

      comms.get(0).allReduce(ours, ours, ReduceOp.SUM, first);
      fail(first); // a time-out
      Communicator.abortAll(comms);
      fail(first); // the abort
    }
    print(agent);
  }

  private static void synchronize(Stream first, Stream second) {
    first.synchronize();
    second.synchronize();
  }

  private static void fail(Stream stream) {
    try {
      stream.synchronize(Duration.ofMillis(300));
    } catch (NcclTimeoutException late) {
      System.out.println("late");
    } catch (NcclException failed) {
      System.out.println("failed");
    }
  }

  private static void print(Agent agent) {
    if (agent != null) {
      agent.print();
    }
  }
}
