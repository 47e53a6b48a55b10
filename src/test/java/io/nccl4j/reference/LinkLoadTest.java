package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.NodePattern;
import io.nccl4j.schedule.Protocol;
import io.nccl4j.schedule.RingSchedule;
import io.nccl4j.schedule.Schedule;
import io.nccl4j.schedule.TreeSchedule;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Counts what the links of real all-reduces carried, against what the schedules say they carry. */
class LinkLoadTest {
  private static final int SLICE_BYTES = 512;
  private static final int CHUNK_BYTES = 2048;
  private static final long SLICE = SLICE_BYTES / 4;
  private static final long CHUNK = CHUNK_BYTES / 4;

  static Stream<Arguments> runs() {
    Layout small = Layout.defaults().withChunkBytes(CHUNK_BYTES).withSliceBytes(SLICE_BYTES);
    return Stream.of(
            small,
            small.withChannels(3).withNodes(2, NodePattern.BALANCED_TREE),
            small.withProtocol(Protocol.LL).withChunkBytes(CHUNK_BYTES).withChannels(4))
        .flatMap(
            layout ->
                Stream.of(1, 2, 3, 4, 6, 8)
                    .flatMap(
                        ranks ->
                            Stream.of(1, 1000, 96 << 10, 100_003)
                                .map(count -> Arguments.of(layout, ranks, count))));
  }

  @ParameterizedTest
  @MethodSource("runs")
  void aRingsLinksCarryWhatItsScheduleSays(Layout layout, int ranks, int count) {
    Schedule schedule = new RingSchedule(layout, ranks, count, 4);
    World world = run(Algorithm.RING, layout, ranks, count);
    assertCarried(schedule, world, World.Route.RING, World.Route.RING);
  }

  @ParameterizedTest
  @MethodSource("runs")
  void aTreesLinksCarryWhatItsScheduleSays(Layout layout, int ranks, int count) {
    Schedule schedule = new TreeSchedule(layout, ranks, count, 4);
    World world = run(Algorithm.TREE, layout, ranks, count);
    assertCarried(schedule, world, World.Route.UP, World.Route.DOWN);
  }

  private static World run(Algorithm algorithm, Layout layout, int ranks, int count) {
    AtomicReference<World> world = new AtomicReference<>();
    Ranks.run(
        ranks,
        ReferenceOptions.defaults().withAlgorithm(algorithm).withLayout(layout),
        (comm, stream) -> {
          try (Buffer data = comm.allocate(DataType.FLOAT32, count)) {
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            stream.synchronize();
          }
          world.set(((ReferenceCommunicator) comm).member().world());
        });
    return world.get();
  }

  private static void assertCarried(
      Schedule schedule, World world, World.Route one, World.Route other) {
    for (int channel = 0; channel < schedule.channels(); channel++) {
      long perChannel = schedule.end(channel) - schedule.begin(channel);
      boolean full = perChannel % (schedule.ranks() * CHUNK) == 0;
      for (int from = 0; from < schedule.ranks(); from++) {
        long all = 0;
        for (int to = 0; to < schedule.ranks(); to++) {
          long slices = sent(world, one, channel, from, to);
          if (other != one) {
            slices += sent(world, other, channel, from, to);
          }
          String link = "channel " + channel + ", rank " + from + " to rank " + to;
          assertCarried(schedule.elementsBetween(channel, from, to), slices, full, link);
          all += slices;
        }
        assertEquals(schedule.slicesSent(channel, from), all, "channel " + channel);
      }
    }
  }

  /** Links count slices; where all of them are full, that tells how many elements there were. */
  private static void assertCarried(long elements, long slices, boolean full, String link) {
    if (full) {
      assertEquals(elements, slices * SLICE, link);
    } else {
      assertTrue(elements <= slices * SLICE, link);
      assertTrue(elements >= slices, link);
    }
  }

  private static long sent(World world, World.Route route, int channel, int from, int to) {
    return world.sendLink(route, channel, from, to).sent();
  }
}
