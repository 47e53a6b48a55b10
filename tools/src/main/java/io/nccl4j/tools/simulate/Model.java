package io.nccl4j.tools.simulate;

import io.nccl4j.internal.schedule.RingSchedule;
import io.nccl4j.internal.schedule.Schedule;
import io.nccl4j.internal.schedule.TreeSchedule;
import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import io.nccl4j.schedule.TreePattern;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToDoubleFunction;

/** Estimates all-reduces of one cluster on one network. */
final class Model {
  /** Elements are float32. */
  static final int ELEMENT_BYTES = 4;

  /** The number of operations of a hierarchical all-reduce. */
  private static final int OPERATIONS = 3;

  private final Cluster cluster;
  private final Network network;
  private final Map<Protocol, Layout> layouts = new EnumMap<>(Protocol.class);
  // All ranks; the ranks of one node; one rank of each node.
  private final Shape rings;
  private final Shape trees;
  private final Shape ringWithinNode;
  private final Shape ringAcross;
  private final Shape treeAcross;

  Model(Cluster cluster, Network network, int channels) {
    this.cluster = cluster;
    this.network = network;
    for (Protocol protocol : Protocol.values()) {
      layouts.put(protocol, layout(protocol, channels, cluster.ranksPerNode()));
    }
    Layout any = layouts.get(Protocol.SIMPLE);
    Layout flat = layout(Protocol.SIMPLE, channels, 1);
    Cluster across = new Cluster(cluster.nodes(), 1);
    rings = Shape.ofRings(any, cluster);
    trees = Shape.ofTrees(any, cluster);
    ringWithinNode = Shape.ofRings(any, inside());
    ringAcross = Shape.ofRings(flat, across);
    treeAcross = Shape.ofTrees(flat, across);
  }

  /** Returns NCCL's layout: with Simple, a ring sends a chunk in two slices. */
  static Layout layout(Protocol protocol, int channels, int ranksPerNode) {
    int chunk = protocol.chunkBytes();
    return Layout.defaults()
        .withProtocol(protocol)
        .withChannels(channels)
        .withSliceBytes(protocol == Protocol.SIMPLE ? chunk / 2 : chunk)
        .withNodes(ranksPerNode, TreePattern.BALANCED_TREE);
  }

  private Cluster inside() {
    return new Cluster(cluster.ranksPerNode(), cluster.ranksPerNode());
  }

  Cluster cluster() {
    return cluster;
  }

  /** Returns the algorithms to compare; hierarchical needs several nodes with several ranks. */
  List<Algorithm> algorithms() {
    return cluster.nodes() > 1 && cluster.ranksPerNode() > 1
        ? List.of(Algorithm.values())
        : List.of(Algorithm.RING, Algorithm.TREE);
  }

  /** Returns the estimates of all algorithms with all protocols. */
  List<Estimate> estimates(long bytes) {
    List<Estimate> estimates = new ArrayList<>();
    for (Algorithm algorithm : algorithms()) {
      for (Protocol protocol : Protocol.values()) {
        estimates.add(estimate(algorithm, protocol, bytes));
      }
    }
    return estimates;
  }

  /** Returns the fastest estimate. */
  Estimate best(long bytes) {
    return fastest(estimates(bytes));
  }

  /** Returns an algorithm's estimate with its best protocol. */
  Estimate best(Algorithm algorithm, long bytes) {
    List<Estimate> estimates = new ArrayList<>();
    for (Protocol protocol : Protocol.values()) {
      estimates.add(estimate(algorithm, protocol, bytes));
    }
    return fastest(estimates);
  }

  private static Estimate fastest(List<Estimate> estimates) {
    return estimates.stream().min(Comparator.comparingDouble(Estimate::seconds)).orElseThrow();
  }

  /**
   * Returns one estimate.
   *
   * @param bytes the bytes that every rank reduces, a multiple of 4
   */
  Estimate estimate(Algorithm algorithm, Protocol protocol, long bytes) {
    Layout layout = layouts.get(protocol);
    long count = bytes / ELEMENT_BYTES;
    return switch (algorithm) {
      case RING -> {
        Cost cost = ring(layout, rings, cluster, count);
        yield estimate(algorithm, algorithm, protocol, bytes, network.launch(), cost);
      }
      case TREE -> {
        Cost cost = tree(layout, trees, cluster, count);
        yield estimate(algorithm, algorithm, protocol, bytes, network.launch(), cost);
      }
      case HIERARCHICAL -> hierarchical(protocol, bytes);
    };
  }

  private Estimate estimate(
      Algorithm algorithm,
      Algorithm across,
      Protocol protocol,
      long bytes,
      double launch,
      Cost cost) {
    return new Estimate(
        algorithm, across, protocol, cluster.ranks(), bytes, launch + cost.latency, cost.transfer);
  }

  private Estimate hierarchical(Protocol protocol, long bytes) {
    Layout layout = layouts.get(protocol);
    long count = bytes / ELEMENT_BYTES;
    // The two halves of a ring all-reduce within a node, with another all-reduce between them.
    Cost inside = ring(layout, ringWithinNode, inside(), count);
    long shard = Math.ceilDiv(count, (long) cluster.ranksPerNode());
    Layout flat = layout.withNodes(1, TreePattern.TREE);
    Cluster oneRankPerNode = new Cluster(cluster.nodes(), 1);
    Cost ring = ring(flat, ringAcross, oneRankPerNode, shard);
    Cost tree = tree(flat, treeAcross, oneRankPerNode, shard);
    boolean ringIsFaster = ring.seconds() <= tree.seconds();
    return estimate(
        Algorithm.HIERARCHICAL,
        ringIsFaster ? Algorithm.RING : Algorithm.TREE,
        protocol,
        bytes,
        OPERATIONS * network.launch(),
        inside.plus(ringIsFaster ? ring : tree));
  }

  /** Seconds of latency, and the additional seconds to transfer the data. */
  private record Cost(double latency, double transfer) {
    double seconds() {
      return latency + transfer;
    }

    Cost plus(Cost other) {
      return new Cost(latency + other.latency, transfer + other.transfer);
    }
  }

  /**
   * Estimates rings. Once the first data has gone around, all channels together keep the most
   * loaded link busy, unless a single channel takes longer: it starts a slice only after the
   * previous one has gone all the way.
   */
  private Cost ring(Layout layout, Shape shape, Cluster where, long count) {
    Schedule schedule = new RingSchedule(layout, where.ranks(), count, ELEMENT_BYTES);
    double latency = longest(shape, hops -> network.latency(hops, layout.protocol()));
    double transfer = transfer(schedule, layout, shape, where);
    long turns = turns(schedule);
    double singleChannel = turns * latency + transfer * largestShare(schedule);
    return singleChannel > latency + transfer
        ? new Cost(turns * latency, transfer * largestShare(schedule))
        : new Cost(latency, transfer);
  }

  /** Returns how often the busiest channel goes all the way around. */
  static long turns(Schedule schedule) {
    long most = 0;
    for (int channel = 0; channel < schedule.channels(); channel++) {
      // The second last rank does not send the smallest chunks.
      long slices = schedule.slicesSent(channel, schedule.ranks() - 2);
      most = Math.max(most, Math.ceilDiv(slices, (long) schedule.hops(channel)));
    }
    return most;
  }

  private static double largestShare(Schedule schedule) {
    long most = 0;
    for (int channel = 0; channel < schedule.channels(); channel++) {
      most = Math.max(most, schedule.end(channel) - schedule.begin(channel));
    }
    return (double) most / schedule.count();
  }

  /**
   * Estimates trees. The first slice of each channel goes up and down; the others follow as closely
   * as the most loaded link permits.
   */
  private Cost tree(Layout layout, Shape shape, Cluster where, long count) {
    Protocol protocol = layout.protocol();
    Schedule schedule = new TreeSchedule(layout, where.ranks(), count, ELEMENT_BYTES);
    long elements = 0;
    for (int channel = 0; channel < schedule.channels(); channel++) {
      elements += schedule.largestSlice(channel);
    }
    long slices = protocol.wireBytes(elements * ELEMENT_BYTES);
    ToDoubleFunction<Hops> fill =
        hops ->
            hops.inter() * slices / interBandwidth(layout, where)
                + hops.intra() * slices / network.intra();
    double longest =
        longest(shape, hops -> network.latency(hops, protocol) + fill.applyAsDouble(hops));
    double latency = longest(shape, hops -> network.latency(hops, protocol));
    double rest = transfer(schedule, layout, shape, where) * (count - elements) / count;
    return new Cost(latency, longest - latency + rest);
  }

  private static double longest(Shape shape, ToDoubleFunction<Hops> price) {
    return shape.paths().stream().mapToDouble(price).max().orElse(0);
  }

  /** Returns the time that the most loaded link is busy. */
  private double transfer(Schedule schedule, Layout layout, Shape shape, Cluster where) {
    Load load = shape.load(schedule);
    Protocol protocol = layout.protocol();
    return Math.max(
        protocol.wireBytes(load.inter()) / interBandwidth(layout, where),
        protocol.wireBytes(load.intra()) / network.intra());
  }

  /** Returns the bandwidth of a node to others: each channel uses one of its network cards. */
  private double interBandwidth(Layout layout, Cluster where) {
    return network.inter() * Math.min(layout.channels(), where.ranksPerNode());
  }
}
