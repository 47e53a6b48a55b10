package io.nccl4j.tools.evidence;

import io.nccl4j.internal.schedule.Tree;
import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import io.nccl4j.schedule.TreePattern;
import io.nccl4j.tools.evidence.Child.NotPossible;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.IntStream;

/**
 * The rings and trees of one communicator, parsed from NCCL's log ({@code NCCL_DEBUG=INFO}): lines
 * of the forms {@code Channel 00/02 : 0 1 2 3} and {@code Trees [0] 1/-1/-1->0->-1 [1] ...}.
 */
final class NcclGraph {
  private static final Pattern RING = Pattern.compile("Channel (\\d+)/\\d+ :((?: +\\d+)+)\\s*$");
  private static final Pattern TREES = Pattern.compile("NCCL INFO Trees (.*)$");
  private static final Pattern NODE =
      Pattern.compile("\\[(\\d+)] (-?\\d+)/(-?\\d+)/(-?\\d+)->(\\d+)->(-?\\d+)");

  /** A rank's neighbours in a tree; the parent is -1 if it has none. */
  private record GraphNode(int parent, List<Integer> children) {}

  private final Map<Integer, List<Integer>> rings = new TreeMap<>();
  private final Map<Integer, Map<Integer, GraphNode>> trees = new TreeMap<>();

  private NcclGraph() {}

  static NcclGraph of(List<String> log) {
    NcclGraph graph = new NcclGraph();
    for (String line : log) {
      Matcher ring = RING.matcher(line);
      Matcher nodes = TREES.matcher(line);
      if (ring.find()) {
        graph.rings.put(Integer.valueOf(ring.group(1)), numbers(ring.group(2)));
      } else if (nodes.find()) {
        graph.addNodes(nodes.group(1));
      }
    }
    return graph;
  }

  private static List<Integer> numbers(String text) {
    return Pattern.compile(" +").splitAsStream(text.strip()).map(Integer::valueOf).toList();
  }

  private void addNodes(String text) {
    Matcher node = NODE.matcher(text);
    while (node.find()) {
      List<Integer> children =
          IntStream.rangeClosed(2, 4)
              .map(group -> Integer.parseInt(node.group(group)))
              .filter(child -> child >= 0)
              .boxed()
              .toList();
      trees
          .computeIfAbsent(Integer.valueOf(node.group(1)), channel -> new TreeMap<>())
          .put(
              Integer.valueOf(node.group(5)),
              new GraphNode(Integer.parseInt(node.group(6)), children));
    }
  }

  /** Returns the layout of these rings. */
  Layout ringLayout(int ranks, Protocol protocol) throws NotPossible {
    if (rings.isEmpty() || rings.values().stream().anyMatch(order -> order.size() != ranks)) {
      throw new NotPossible("NCCL's log has no rings of " + ranks + " ranks: " + rings);
    }
    return Layout.defaults()
        .withChannels(rings.size())
        .withProtocol(protocol)
        .withRingOrders(List.copyOf(rings.values()));
  }

  /** Returns the layout of these trees, with one rank per node or all ranks on one node. */
  Layout treeLayout(int ranks, Protocol protocol) throws NotPossible {
    for (int firstTreeChannels = 1; firstTreeChannels <= trees.size(); firstTreeChannels++) {
      Layout layout =
          Layout.defaults()
              .withChannels(trees.size())
              .withProtocol(protocol)
              .withFirstTreeChannels(firstTreeChannels);
      if (matches(layout, ranks)) {
        return layout;
      }
      List<List<Integer>> chains = trees.values().stream().map(NcclGraph::chain).toList();
      if (chains.stream().allMatch(chain -> chain.size() == ranks)) {
        layout = layout.withNodes(ranks, TreePattern.TREE).withTreeOrders(chains);
        if (matches(layout, ranks)) {
          return layout;
        }
      }
    }
    throw new NotPossible("the reference has no layout for the trees in NCCL's log: " + trees);
  }

  /** Returns the ranks from the root down along first children. */
  private static List<Integer> chain(Map<Integer, GraphNode> tree) {
    List<Integer> chain = new ArrayList<>();
    tree.forEach(
        (rank, node) -> {
          if (node.parent < 0) {
            chain.add(rank);
          }
        });
    while (!chain.isEmpty() && chain.size() < tree.size()) {
      GraphNode last = tree.get(chain.getLast());
      if (last == null || last.children.isEmpty()) {
        break;
      }
      chain.add(last.children.getFirst());
    }
    return chain;
  }

  private boolean matches(Layout layout, int ranks) {
    for (Map.Entry<Integer, Map<Integer, GraphNode>> entry : trees.entrySet()) {
      Tree tree = Tree.of(layout, entry.getKey(), ranks);
      for (int rank = 0; rank < ranks; rank++) {
        if (!nodeIn(tree, rank).equals(entry.getValue().get(rank))) {
          return false;
        }
      }
    }
    return true;
  }

  private static GraphNode nodeIn(Tree tree, int rank) {
    return new GraphNode(
        tree.parent(rank),
        IntStream.range(0, tree.children(rank)).map(i -> tree.child(rank, i)).boxed().toList());
  }
}
