package io.nccl4j.internal.schedule;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.regex.MatchResult;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.IntStream;

/**
 * The orders of the ranks that NCCL's log names for one communicator, by channel: of rings, in
 * lines such as {@code Channel 00/02 : 0 1 2}, and of trees, in lines such as {@code Trees [0]
 * 2/-1/-1->1->0 [1] ...}, one for each rank. Within a node a tree is a chain.
 */
record LoggedOrders(List<List<Integer>> rings, List<List<Integer>> trees) {
  private static final Pattern RING = Pattern.compile("Channel (\\d+)/(\\d+) :((?: +\\d+)+)\\s*$");
  private static final Pattern TREES = Pattern.compile("NCCL INFO Trees (.*)$");
  private static final Pattern NODE =
      Pattern.compile("\\[(\\d+)] (-?\\d+)/-?\\d+/-?\\d+->(\\d+)->(-?\\d+)");

  /** Returns the orders of communicators of one node that were created one after the other. */
  static List<LoggedOrders> of(List<String> log, List<Integer> sizes) {
    Iterator<MatchResult> rings = matches(RING, log);
    Iterator<MatchResult> trees = matches(TREES, log);
    List<LoggedOrders> orders = new ArrayList<>();
    for (int ranks : sizes) {
      List<List<Integer>> ringOrders = rings(rings);
      orders.add(new LoggedOrders(ringOrders, chains(trees, ringOrders.size(), ranks, ranks)));
    }
    return orders;
  }

  /**
   * Returns the orders of the first communicator of processes with one rank each, in rank order.
   */
  static LoggedOrders ofProcesses(List<List<String>> logs, int ranksPerNode) {
    List<List<Integer>> ringOrders = rings(matches(RING, logs.getFirst()));
    Iterator<MatchResult> trees = logs.stream().map(log -> matches(TREES, log).next()).iterator();
    return new LoggedOrders(
        ringOrders, chains(trees, ringOrders.size(), logs.size(), ranksPerNode));
  }

  private static Iterator<MatchResult> matches(Pattern pattern, List<String> log) {
    return log.stream()
        .map(pattern::matcher)
        .filter(Matcher::find)
        .map(Matcher::toMatchResult)
        .iterator();
  }

  private static List<List<Integer>> rings(Iterator<MatchResult> lines) {
    List<List<Integer>> orders = new ArrayList<>();
    int channels = 1;
    while (orders.size() < channels) {
      MatchResult line = lines.next();
      channels = Integer.parseInt(line.group(2));
      orders.add(
          Pattern.compile(" +")
              .splitAsStream(line.group(3).strip())
              .map(Integer::valueOf)
              .toList());
    }
    return orders;
  }

  /** Returns the ranks of each channel, node by node, from the one that has no parent there. */
  private static List<List<Integer>> chains(
      Iterator<MatchResult> lines, int channels, int ranks, int ranksPerNode) {
    int[][] children = new int[channels][ranks];
    int[][] parents = new int[channels][ranks];
    for (int i = 0; i < ranks; i++) {
      Matcher node = NODE.matcher(lines.next().group(1));
      while (node.find()) {
        int channel = Integer.parseInt(node.group(1));
        int rank = Integer.parseInt(node.group(3));
        children[channel][rank] = Integer.parseInt(node.group(2));
        parents[channel][rank] = Integer.parseInt(node.group(4));
      }
    }
    return IntStream.range(0, channels)
        .mapToObj(channel -> chains(children[channel], parents[channel], ranksPerNode))
        .toList();
  }

  private static List<Integer> chains(int[] children, int[] parents, int ranksPerNode) {
    return IntStream.range(0, children.length)
        .filter(rank -> !sameNode(rank, parents[rank], ranksPerNode))
        .flatMap(
            head ->
                IntStream.iterate(
                        head, rank -> sameNode(head, rank, ranksPerNode), rank -> children[rank])
                    .limit(ranksPerNode))
        .boxed()
        .toList();
  }

  private static boolean sameNode(int rank, int other, int ranksPerNode) {
    return other != Tree.NONE && other / ranksPerNode == rank / ranksPerNode;
  }
}
