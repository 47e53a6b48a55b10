package io.nccl4j.tools.simulate;

import io.nccl4j.internal.schedule.Ring;
import io.nccl4j.internal.schedule.RingSchedule;
import io.nccl4j.internal.schedule.Schedule;
import io.nccl4j.internal.schedule.Tree;
import io.nccl4j.internal.schedule.TreeSchedule;
import io.nccl4j.schedule.Layout;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/**
 * Properties of a layout that do not depend on the size: a few paths that include the longest, and
 * a few nodes that include the busiest. This avoids a scan of a hundred thousand ranks per
 * estimate.
 */
final class Shape {
  private final Cluster cluster;
  private final List<Hops> paths;
  private final List<Integer> nodes;

  private Shape(Cluster cluster, Set<Hops> paths, Set<Integer> nodes) {
    this.cluster = cluster;
    this.paths = List.copyOf(paths);
    this.nodes = List.copyOf(nodes);
  }

  /** Returns the shape of a layout's rings, which all have the ranks in order. */
  static Shape ofRings(Layout layout, Cluster cluster) {
    int ranks = cluster.ranks();
    Set<Hops> paths = new HashSet<>();
    if (ranks > 1) {
      Ring ring = Ring.of(layout, 0, ranks);
      int[] inter = new int[ranks];
      int all = 0;
      for (int rank = 0; rank < ranks; rank++) {
        inter[rank] = cluster.sameNode(rank, ring.next(rank)) ? 0 : 1;
        all += inter[rank];
      }
      // A chunk goes around twice, without the last link each time; these two links are adjacent.
      for (int rank = 0; rank < ranks; rank++) {
        int crossed = 2 * all - inter[rank] - inter[ring.next(rank)];
        paths.add(new Hops(crossed, 2 * (ranks - 1) - crossed));
      }
    }
    // A rank sends two chunks once and all others twice. In the last loop, the smallest chunks are
    // those of the last ranks, which therefore send the most.
    int last = cluster.nodes() - 1;
    return new Shape(cluster, paths, new TreeSet<>(List.of(Math.max(0, last - 1), last)));
  }

  /** Returns the shape of a layout's trees. */
  static Shape ofTrees(Layout layout, Cluster cluster) {
    List<Tree> trees = new ArrayList<>();
    for (int channel = 0; channel < layout.channels() && trees.size() < 2; channel++) {
      if (layout.firstTree(channel) == trees.isEmpty()) {
        trees.add(Tree.of(layout, channel, cluster.ranks()));
      }
    }
    Set<Hops> paths = new LinkedHashSet<>();
    Map<List<Integer>, Integer> nodes = new LinkedHashMap<>();
    trees.forEach(tree -> addPaths(tree, cluster, paths));
    for (int node = 0; node < cluster.nodes(); node++) {
      int first = node * cluster.ranksPerNode();
      nodes.putIfAbsent(trees.stream().map(tree -> linksOut(tree, cluster, first)).toList(), node);
    }
    return new Shape(cluster, paths, new TreeSet<>(nodes.values()));
  }

  /** Adds the path from each rank up to the root and down again. */
  private static void addPaths(Tree tree, Cluster cluster, Set<Hops> paths) {
    Hops[] toRoot = new Hops[tree.size()];
    toRoot[tree.root()] = Hops.NONE;
    for (int rank = 0; rank < toRoot.length; rank++) {
      paths.add(toRoot(rank, tree, cluster, toRoot).twice());
    }
  }

  private static Hops toRoot(int rank, Tree tree, Cluster cluster, Hops[] known) {
    if (known[rank] == null) {
      int parent = tree.parent(rank);
      known[rank] = toRoot(parent, tree, cluster, known).then(cluster.sameNode(rank, parent));
    }
    return known[rank];
  }

  /** Returns the number of links from the ranks of a node to ranks of other nodes. */
  private static int linksOut(Tree tree, Cluster cluster, int first) {
    int links = 0;
    for (int rank = first; rank < first + cluster.ranksPerNode(); rank++) {
      for (int peer : peers(tree, rank)) {
        links += cluster.sameNode(rank, peer) ? 0 : 1;
      }
    }
    return links;
  }

  private static List<Integer> peers(Tree tree, int rank) {
    List<Integer> peers = new ArrayList<>();
    for (int i = 0; i < tree.children(rank); i++) {
      peers.add(tree.child(rank, i));
    }
    if (tree.parent(rank) != Tree.NONE) {
      peers.add(tree.parent(rank));
    }
    return peers;
  }

  /** Returns paths that include the longest. */
  List<Hops> paths() {
    return paths;
  }

  /** Returns the load of the busiest node and of the busiest rank. */
  Load load(Schedule schedule) {
    Load most = Load.NONE;
    for (int node : nodes) {
      most = most.max(load(schedule, node));
    }
    return most;
  }

  /** Returns the load of one node and of its busiest rank. */
  Load load(Schedule schedule, int node) {
    long inter = 0;
    long intra = 0;
    int first = node * cluster.ranksPerNode();
    for (int rank = first; rank < first + cluster.ranksPerNode(); rank++) {
      long within = 0;
      for (int channel = 0; channel < schedule.channels(); channel++) {
        for (int peer : peers(schedule, channel, rank)) {
          long bytes = schedule.elementsBetween(channel, rank, peer) * schedule.elementBytes();
          if (cluster.sameNode(rank, peer)) {
            within += bytes;
          } else {
            inter += bytes;
          }
        }
      }
      intra = Math.max(intra, within);
    }
    return new Load(inter, intra);
  }

  private static List<Integer> peers(Schedule schedule, int channel, int rank) {
    return switch (schedule) {
      case RingSchedule rings -> List.of(rings.ring(channel).next(rank));
      case TreeSchedule trees -> peers(trees.tree(channel), rank);
    };
  }
}
