package io.nccl4j.internal.schedule;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import io.nccl4j.schedule.TreePattern;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvFileSource;

/**
 * Compares schedules with decisions of NCCL's planner that were recorded, so that they are tested
 * where {@link PlannerTest} cannot run. The file says how.
 */
class RecordedPlansTest {
  @ParameterizedTest
  @CsvFileSource(resources = "plans.csv", useHeadersInDisplayName = true)
  void schedulesHaveRecordedChannelsAndChunks(
      String algorithm,
      Protocol protocol,
      int ranks,
      int nodes,
      int maxChannels,
      int elementBytes,
      long count,
      int channels,
      long firstPart,
      long lastOffset,
      long firstChunk,
      long lastChunk) {
    Layout layout =
        Layout.defaults()
            .withProtocol(protocol)
            .withChannels(maxChannels)
            .withNodes(ranks / nodes, TreePattern.TREE);
    int last = channels - 1;
    if (algorithm.equals("TREE")) {
      TreeSchedule tree = new TreeSchedule(layout, ranks, count, elementBytes);
      assertDivided(tree, channels, firstPart, lastOffset);
      assertEquals(firstChunk, tree.chunkCount(0));
      assertEquals(lastChunk, tree.chunkCount(last));
    } else {
      RingSchedule ring = new RingSchedule(layout, ranks, count, elementBytes);
      assertDivided(ring, channels, firstPart, lastOffset);
      assertEquals(firstChunk, ring.chunkCount());
      assertEquals(lastChunk, ring.chunkCount());
    }
  }

  private static void assertDivided(
      Schedule schedule, int channels, long firstPart, long lastOffset) {
    assertEquals(channels, schedule.channels());
    assertEquals(firstPart, schedule.end(0) - schedule.begin(0));
    assertEquals(lastOffset, schedule.begin(channels - 1));
  }
}
