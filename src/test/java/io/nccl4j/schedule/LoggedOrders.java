package io.nccl4j.schedule;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.regex.MatchResult;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.IntStream;

/**
 * The orders of the ranks that NCCL's log names for one communicator on one host, by channel: of
 * rings, in lines such as {@code Channel 00/02 : 0 1 2}, and of trees, which are chains there, in
 * lines such as {@code Trees [0] 2/-1/-1->1->0 [1] ...}, one for each rank.
 */
record LoggedOrders(List<List<Integer>> rings, List<List<Integer>> trees) {
  private static final Pattern RING = Pattern.compile("Channel (\\d+)/(\\d+) :((?: +\\d+)+)\\s*$");
  private static final Pattern TREES = Pattern.compile("NCCL INFO Trees (.*)$");
  private static final Pattern NODE =
      Pattern.compile("\\[(\\d+)] (-?\\d+)/-?\\d+/-?\\d+->(\\d+)->(-?\\d+)");

  /** Returns the orders of communicators that were created one after the other. */
  static List<LoggedOrders> of(List<String> log, List<Integer> sizes) {
    Iterator<MatchResult> rings = matches(RING, log);
    Iterator<MatchResult> trees = matches(TREES, log);
    List<LoggedOrders> orders = new ArrayList<>();
    for (int ranks : sizes) {
      List<List<Integer>> ringOrders = rings(rings);
      orders.add(new LoggedOrders(ringOrders, chains(trees, ringOrders.size(), ranks)));
    }
    return orders;
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

  /** Returns the ranks of each channel from the root down. */
  private static List<List<Integer>> chains(Iterator<MatchResult> lines, int channels, int ranks) {
    int[][] children = new int[channels][ranks];
    int[] roots = new int[channels];
    for (int i = 0; i < ranks; i++) {
      Matcher node = NODE.matcher(lines.next().group(1));
      while (node.find()) {
        int channel = Integer.parseInt(node.group(1));
        int rank = Integer.parseInt(node.group(3));
        children[channel][rank] = Integer.parseInt(node.group(2));
        if (Integer.parseInt(node.group(4)) == Tree.NONE) {
          roots[channel] = rank;
        }
      }
    }
    return IntStream.range(0, channels)
        .mapToObj(
            channel ->
                IntStream.iterate(
                        roots[channel], rank -> rank != Tree.NONE, rank -> children[channel][rank])
                    .limit(ranks)
                    .boxed()
                    .toList())
        .toList();
  }
}
