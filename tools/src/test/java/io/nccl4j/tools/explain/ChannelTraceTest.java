package io.nccl4j.tools.explain;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import io.nccl4j.schedule.TreePattern;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class ChannelTraceTest {
  private static List<ChannelTrace> toy(Algorithm algorithm, int ranks) {
    return ChannelTrace.of(
        algorithm.schedule(
            algorithm.toyLayout(Layout.defaults()), ranks, algorithm.toyCount(ranks)));
  }

  private static List<Integer> ranksIn(String value) {
    return Pattern.compile("[0-9]+")
        .matcher(value)
        .results()
        .map(number -> Integer.valueOf(number.group()))
        .sorted()
        .toList();
  }

  @Test
  void ringOfThreeHasTheTextbookSteps() {
    List<Frame> frames = toy(Algorithm.RING, 3).getFirst().frames();
    assertEquals(5, frames.size());
    assertEquals(
        List.of(
            "rank 0 sends its own chunk 2 to rank 1",
            "rank 1 sends its own chunk 0 to rank 2",
            "rank 2 sends its own chunk 1 to rank 0"),
        frames.get(0).moves().stream().map(move -> move.sentence(false)).toList());
    assertEquals(
        "rank 0 reduces chunk 0 from rank 2 with its own: 1+2+0, the result, and sends it to rank"
            + " 1",
        frames.get(2).moves().getFirst().sentence(false));
    assertEquals(
        "rank 2 receives the result of chunk 0 from rank 1",
        frames.get(4).moves().stream()
            .map(move -> move.sentence(false))
            .filter(text -> text.startsWith("rank 2"))
            .findFirst()
            .orElseThrow());
  }

  @Test
  void treeReducesFirstChildBeforeSecond() {
    ChannelTrace first = toy(Algorithm.TREE, 8).getFirst();
    String[][] values = first.holdings(first.frames().size() - 1);
    assertEquals("1+2+3+4+(5+6+7)+0", values[0][0]);
  }

  @Test
  void secondTreeDiffers() {
    assertEquals(
        List.of(
            "tree with root 0: 0 over 2; 2 over 1, 3", "tree with root 3: 1 over 2, 0; 3 over 1"),
        toy(Algorithm.TREE, 4).stream().map(ChannelTrace::shape).toList());
  }

  @ParameterizedTest
  @EnumSource(Algorithm.class)
  void allRanksEndWithTheSameValue(Algorithm algorithm) {
    for (int ranks = 2; ranks <= 33; ranks++) {
      List<Integer> all = IntStream.range(0, ranks).boxed().toList();
      for (ChannelTrace trace : toy(algorithm, ranks)) {
        String[][] values = trace.holdings(trace.frames().size() - 1);
        for (int chunk = 0; chunk < trace.chunks(); chunk++) {
          assertEquals(all, ranksIn(values[0][chunk]), trace.shape());
          for (String[] row : values) {
            assertEquals(values[0][chunk], row[chunk], trace.shape());
          }
        }
      }
    }
  }

  @Test
  void realSizesHaveLoopsAndSlices() {
    Layout layout = Layout.defaults().withProtocol(Protocol.LL).withChannels(1);
    ChannelTrace trace =
        ChannelTrace.of(Algorithm.RING.schedule(layout, 2, 3 * (32 << 10) / 4)).getFirst();
    assertEquals(2, trace.frames().getLast().loop() + 1);
    Frame second = trace.frames().get(3);
    assertEquals(1, second.loop());
    assertEquals(3, second.firstFrame());
    assertEquals("0", trace.holdings(3)[0][0]);
  }

  @Test
  void nodesFormChains() {
    Layout layout =
        Algorithm.TREE.toyLayout(Layout.defaults().withNodes(2, TreePattern.BALANCED_TREE));
    ChannelTrace trace =
        ChannelTrace.of(Algorithm.TREE.schedule(layout, 4, Algorithm.TREE.toyCount(4))).getFirst();
    assertEquals("tree with root 0: 0 over 1, 2; 2 over 3", trace.shape());
  }

  @Test
  void oneRankHasNoFrames() {
    assertEquals(List.of(), toy(Algorithm.RING, 1).getFirst().frames());
  }

  @Test
  void tooManyStepsAreRejected() {
    assertThrows(
        IllegalArgumentException.class,
        () -> ChannelTrace.of(Algorithm.RING.schedule(Layout.defaults(), 64, 1L << 40)));
  }
}
