package io.nccl4j.internal.schedule;

import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import io.nccl4j.schedule.TreePattern;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import org.jspecify.annotations.NullMarked;

/**
 * The rings and trees of one communicator, parsed from NCCL's log ({@code NCCL_DEBUG=INFO}): lines
 * of the forms {@code Channel 00/02 : 0 1 2 3} and {@code Trees [0] 1/-1/-1->0->-1 [1] ...}.
 */
@NullMarked
public final class NcclGraph {
  private static final Pattern RING = Pattern.compile("Channel (\\d+)/\\d+ :((?: +\\d+)+)\\s*$");
  private static final Pattern TREES = Pattern.compile("NCCL INFO Trees (.*)$");
  private static final Pattern THREAD = Pattern.compile("\\S+:\\d+:\\d+ \\[");
  private static final Pattern NODE =
      Pattern.compile("\\[(\\d+)] (-?\\d+)/(-?\\d+)/(-?\\d+)->(\\d+)->(-?\\d+)");

  /** A rank's neighbours in a tree; the parent is -1 if it has none. */
  private record GraphNode(int parent, List<Integer> children) {}

  private final Map<Integer, List<Integer>> rings = new TreeMap<>();
  private final Map<Integer, Map<Integer, GraphNode>> trees = new TreeMap<>();

  private NcclGraph() {}

  /**
   * {@return the graph of one communicator}
   *
   * @param log NCCL's lines about this communicator, from all ranks
   */
  public static NcclGraph of(List<String> log) {
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

  /**
   * {@return the lines that a rank logged while its communicator was created} One thread creates
   * it, between lines with {@code Init START} and {@code Init COMPLETE}.
   *
   * @param log the log of the rank's process, which may have other communicators
   * @param communicator the {@code ncclComm_t}; the last communicator with this address counts
   */
  public static List<String> linesOf(List<String> log, long communicator) {
    String start = " comm 0x" + Long.toHexString(communicator) + " ";
    List<String> lines = new ArrayList<>();
    String thread = null;
    for (String line : log) {
      Matcher prefix = THREAD.matcher(line);
      if (!prefix.find()) {
        continue;
      }
      if (line.contains(start) && line.contains("Init START")) {
        lines.clear();
        thread = prefix.group();
      } else if (prefix.group().equals(thread)) {
        if (line.contains("Init COMPLETE")) {
          thread = null;
        } else if (RING.matcher(line).find() || TREES.matcher(line).find()) {
          lines.add(line);
        }
      }
    }
    return lines;
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

  /**
   * {@return the layout of these rings; empty if the log has none}
   *
   * @param ranks the number of ranks
   * @param protocol NCCL's protocol
   */
  public Optional<Layout> ringLayout(int ranks, Protocol protocol) {
    if (rings.isEmpty() || rings.values().stream().anyMatch(order -> order.size() != ranks)) {
      return Optional.empty();
    }
    return Optional.of(
        Layout.defaults()
            .withChannels(rings.size())
            .withProtocol(protocol)
            .withRingOrders(List.copyOf(rings.values())));
  }

  /**
   * {@return the layout of these trees, with one rank per node or all ranks on one node; empty if
   * the log has none, or the reference has no layout for them}
   *
   * @param ranks the number of ranks
   * @param protocol NCCL's protocol
   */
  public Optional<Layout> treeLayout(int ranks, Protocol protocol) {
    for (int firstTreeChannels = 1; firstTreeChannels <= trees.size(); firstTreeChannels++) {
      Layout layout =
          Layout.defaults()
              .withChannels(trees.size())
              .withProtocol(protocol)
              .withFirstTreeChannels(firstTreeChannels);
      if (matches(layout, ranks)) {
        return Optional.of(layout);
      }
      List<List<Integer>> chains = trees.values().stream().map(NcclGraph::chain).toList();
      if (chains.stream().allMatch(chain -> chain.size() == ranks)) {
        layout = layout.withNodes(ranks, TreePattern.TREE).withTreeOrders(chains);
        if (matches(layout, ranks)) {
          return Optional.of(layout);
        }
      }
    }
    return Optional.empty();
  }

  @Override
  public String toString() {
    return "rings " + rings + ", trees " + trees;
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
