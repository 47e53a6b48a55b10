package io.nccl4j.tools.simulate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.internal.schedule.RingSchedule;
import io.nccl4j.internal.schedule.Schedule;
import io.nccl4j.internal.schedule.Step;
import io.nccl4j.internal.schedule.TreeSchedule;
import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Compares shapes with walks of the schedules that the reference executes. */
class ShapeTest {
  private static final int INTER_COST = 7;
  private static final int INTRA_COST = 2;

  static Stream<Arguments> clusters() {
    return Stream.of(1, 2, 3, 4, 8)
        .flatMap(
            ranksPerNode ->
                IntStream.of(1, 2, 3, 4, 5, 8, 11)
                    .mapToObj(nodes -> new Cluster(nodes * ranksPerNode, ranksPerNode)))
        .filter(cluster -> cluster.ranks() > 1)
        .flatMap(
            cluster ->
                Stream.of(1L, 1000L, 40_001L, 1L << 20).map(count -> Arguments.of(cluster, count)));
  }

  private static Layout layout(Cluster cluster) {
    return Model.layout(Protocol.LL, 4, cluster.ranksPerNode());
  }

  @ParameterizedTest
  @MethodSource("clusters")
  void longestPathMatchesWalk(Cluster cluster, long count) {
    Layout layout = layout(cluster);
    // Enough data for every channel and chunk, so that no path is missing.
    long all = Math.max(count, 1 << 16);
    Schedule ring = new RingSchedule(layout, cluster.ranks(), all, 4);
    assertEquals(lastArrival(ring, cluster), longest(Shape.ofRings(layout, cluster)));
    Schedule tree = new TreeSchedule(layout, cluster.ranks(), all, 4);
    assertEquals(lastArrival(tree, cluster), longest(Shape.ofTrees(layout, cluster)));
    for (Hops hops : Shape.ofRings(layout, cluster).paths()) {
      assertEquals(ring.hops(0), hops.inter() + hops.intra());
    }
    int most =
        Shape.ofTrees(layout, cluster).paths().stream()
            .mapToInt(hops -> hops.inter() + hops.intra())
            .max()
            .orElseThrow();
    assertEquals(Math.max(tree.hops(0), tree.hops(tree.channels() - 1)), most);
  }

  private static long longest(Shape shape) {
    return shape.paths().stream()
        .mapToLong(hops -> hops.inter() * INTER_COST + hops.intra() * INTRA_COST)
        .max()
        .orElseThrow();
  }

  /** Returns when the last rank receives a slice if only hops take time. */
  private static long lastArrival(Schedule schedule, Cluster cluster) {
    Map<String, Long> known = new HashMap<>();
    long[] last = {0};
    schedule.walk(
        step -> {
          String slice = step.channel() + " " + step.begin() + " ";
          long time = 0;
          for (int from : step.from()) {
            int cost = cluster.sameNode(from, step.rank()) ? INTRA_COST : INTER_COST;
            time = Math.max(time, known.get(slice + from) + cost);
          }
          known.put(slice + step.rank(), time);
          last[0] = Math.max(last[0], time);
        });
    return last[0];
  }

  @ParameterizedTest
  @MethodSource("clusters")
  void busiestNodeMatchesWalk(Cluster cluster, long count) {
    Layout layout = layout(cluster);
    assertBusiest(
        new RingSchedule(layout, cluster.ranks(), count, 4),
        Shape.ofRings(layout, cluster),
        cluster);
    assertBusiest(
        new TreeSchedule(layout, cluster.ranks(), count, 4),
        Shape.ofTrees(layout, cluster),
        cluster);
  }

  private static void assertBusiest(Schedule schedule, Shape shape, Cluster cluster) {
    Load most = Load.NONE;
    for (int node = 0; node < cluster.nodes(); node++) {
      most = most.max(shape.load(schedule, node));
    }
    assertEquals(most, shape.load(schedule));
    assertEquals(busiestOfWalk(schedule, cluster), most);
  }

  private static Load busiestOfWalk(Schedule schedule, Cluster cluster) {
    long[] inter = new long[cluster.nodes()];
    long[] intra = new long[cluster.ranks()];
    schedule.walk(
        step -> {
          for (int to : step.to()) {
            long bytes = step.count() * schedule.elementBytes();
            if (cluster.sameNode(step.rank(), to)) {
              intra[step.rank()] += bytes;
            } else {
              inter[step.rank() / cluster.ranksPerNode()] += bytes;
            }
          }
        });
    return new Load(
        IntStream.range(0, inter.length).mapToLong(node -> inter[node]).max().orElse(0),
        IntStream.range(0, intra.length).mapToLong(rank -> intra[rank]).max().orElse(0));
  }

  @ParameterizedTest
  @MethodSource("clusters")
  void ringTurnsMatchWalk(Cluster cluster, long count) {
    RingSchedule schedule = new RingSchedule(layout(cluster), cluster.ranks(), count, 4);
    Map<Integer, Set<String>> turns = new HashMap<>();
    schedule.walk((Step step) -> note(step, turns));
    int most = turns.values().stream().mapToInt(Set::size).max().orElseThrow();
    assertEquals(most, Model.turns(schedule));
  }

  private static void note(Step step, Map<Integer, Set<String>> turns) {
    turns
        .computeIfAbsent(step.channel(), channel -> new HashSet<>())
        .add(step.loop() + " " + step.slice());
  }

  @Test
  void incompleteNodesAreRejected() {
    assertEquals(
        "10 ranks do not fill nodes of 4 ranks each",
        assertThrows(IllegalArgumentException.class, () -> new Cluster(10, 4)).getMessage());
  }
}
