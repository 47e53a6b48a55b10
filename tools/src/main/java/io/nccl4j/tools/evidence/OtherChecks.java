package io.nccl4j.tools.evidence;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;

/**
 * Checks groups, graphs, split and non-blocking communicators, as the contract suite does, but with
 * ranks that may be processes. No check needs the result of another rank.
 */
final class OtherChecks {
  private static final int OPERATIONS = 8;

  private final Child child;
  private final Peers peers;
  private final Backend backend;
  private final Endpoint endpoint;
  private final List<List<Object>> rows = new ArrayList<>();
  private int failed;

  OtherChecks(Child child, Peers peers, Backend backend, Endpoint endpoint) {
    this.child = child;
    this.peers = peers;
    this.backend = backend;
    this.endpoint = endpoint;
  }

  /** One check; returns the failure, or null. */
  private interface Check {
    String run();
  }

  /** Runs all checks and returns how many failed. */
  int run() {
    check("a group of " + OPERATIONS + " all-reduces", this::group);
    check("a graph of 3 all-reduces, launched twice", this::graph);
    check("a split that reverses the ranks", this::split);
    check("a non-blocking communicator", this::nonBlocking);
    child.table(new Table("Other checks, rank " + child.rank, List.of("check", "result"), rows));
    return failed;
  }

  private void check(String name, Check check) {
    String wrong;
    try {
      wrong = check.run();
    } catch (RuntimeException e) {
      e.printStackTrace();
      wrong = e.getClass().getSimpleName() + ": " + e.getMessage();
    }
    failed += wrong == null ? 0 : 1;
    rows.add(List.of(name, wrong == null ? "ok" : "**" + wrong + "**"));
  }

  private String group() {
    Communicator comm = endpoint.comm();
    int[] numbers = IntStream.rangeClosed(1, OPERATIONS).toArray();
    int[] sums = IntStream.of(numbers).map(number -> number * child.size).toArray();
    try (Buffer values = ints(numbers)) {
      Group.run(
          () -> {
            for (int i = 0; i < OPERATIONS; i++) {
              Buffer value = values.slice(i, 1);
              comm.allReduce(value, value, ReduceOp.SUM, endpoint.stream());
            }
          });
      return expect(values, sums);
    }
  }

  private String graph() {
    Communicator comm = endpoint.comm();
    try (Buffer values = ints(1)) {
      endpoint.stream().synchronize();
      try (Graph graph =
          Graph.capture(
                  List.of(endpoint.stream()),
                  () -> {
                    for (int i = 0; i < 3; i++) {
                      comm.allReduce(values, values, ReduceOp.SUM, endpoint.stream());
                    }
                  })
              .getFirst()) {
        graph.launch(endpoint.stream());
        graph.launch(endpoint.stream());
        endpoint.stream().synchronize();
      }
      return expect(values, power(child.size, 6));
    }
  }

  private String split() {
    try (Communicator reversed = endpoint.comm().split(0, -child.rank)) {
      int expected = child.size - 1 - child.rank;
      if (reversed.rank() != expected) {
        return "rank is " + reversed.rank() + ", expected " + expected;
      }
      return sum(reversed);
    }
  }

  private String nonBlocking() {
    CommunicatorConfig config =
        CommunicatorConfig.defaults()
            .withBlocking(false)
            .withDevice(child.device)
            .withTimeout(Duration.ofSeconds(20));
    try (Communicator comm = peers.communicator(backend, config)) {
      return sum(comm);
    }
  }

  /** Checks an all-reduce of rank + 1. */
  private String sum(Communicator comm) {
    try (Buffer values = ints(comm.rank() + 1)) {
      comm.allReduce(values, values, ReduceOp.SUM, endpoint.stream());
      String wrong = expect(values, child.size * (child.size + 1) / 2);
      endpoint.stream().synchronize();
      return wrong;
    }
  }

  private Buffer ints(int... values) {
    Buffer buffer = endpoint.comm().newBuffer(DataType.INT32, values.length);
    buffer.copyFromAsync(MemorySegment.ofArray(values), endpoint.stream());
    return buffer;
  }

  /** Returns a message about the first unexpected value, or null. */
  private String expect(Buffer values, int... expected) {
    MemorySegment actual = endpoint.download(values);
    for (int i = 0; i < expected.length; i++) {
      long value = DataType.INT32.getLong(actual, i);
      if (value != expected[i]) {
        return "is " + value + ", expected " + expected[i];
      }
    }
    return null;
  }

  private static int power(int base, int exponent) {
    int result = 1;
    for (int i = 0; i < exponent; i++) {
      result *= base;
    }
    return result;
  }
}
