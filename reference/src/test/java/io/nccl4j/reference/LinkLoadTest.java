package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.internal.reference.ReferenceCommunicator;
import io.nccl4j.internal.reference.rank.CommunicatorState;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.internal.schedule.RingSchedule;
import io.nccl4j.internal.schedule.Schedule;
import io.nccl4j.internal.schedule.TreeSchedule;
import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import io.nccl4j.schedule.TreePattern;
import io.nccl4j.spi.Contract;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Compares the traffic on the links of real all-reduces with that of their schedules. */
class LinkLoadTest {
  private static final int SLICE_BYTES = 512;
  private static final int CHUNK_BYTES = 2048;
  private static final long SLICE = SLICE_BYTES / 4;
  private static final long CHUNK = CHUNK_BYTES / 4;

  static Stream<Arguments> runs() {
    Layout small = Layout.defaults().withChunkBytes(CHUNK_BYTES).withSliceBytes(SLICE_BYTES);
    return Stream.of(
            small,
            small.withChannels(3).withNodes(2, TreePattern.BALANCED_TREE),
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
  void ringLinksCarryTheTrafficOfTheSchedule(Layout layout, int ranks, int count) {
    Schedule schedule = new RingSchedule(layout, ranks, count, 4);
    CommunicatorState communicator = run(Algorithm.RING, layout, ranks, count);
    assertCarried(schedule, communicator, Route.RING, Route.RING);
  }

  @ParameterizedTest
  @MethodSource("runs")
  void treeLinksCarryTheTrafficOfTheSchedule(Layout layout, int ranks, int count) {
    Schedule schedule = new TreeSchedule(layout, ranks, count, 4);
    CommunicatorState communicator = run(Algorithm.TREE, layout, ranks, count);
    assertCarried(schedule, communicator, Route.UP, Route.DOWN);
  }

  /**
   * The hierarchical all-reduce as {@code scripts/nccl4j simulate} models it: a reduce-scatter
   * within each node, an all-reduce of each shard across the nodes, an all-gather within each node.
   * Within a node the two halves carry the traffic of an all-reduce around the node's ring.
   */
  @ParameterizedTest
  @MethodSource("hierarchies")
  void hierarchicalLinksCarryTheTrafficOfTheSchedules(
      Algorithm across, int nodes, int ranksPerNode) {
    Layout layout =
        Layout.defaults()
            .withChunkBytes(CHUNK_BYTES)
            .withSliceBytes(SLICE_BYTES)
            .withNodes(ranksPerNode, TreePattern.TREE);
    // Whole chunks for every channel of every ring.
    int shard = (int) (2L * nodes * 48 * CHUNK);
    int count = shard * ranksPerNode;
    Schedule inside = new RingSchedule(layout, ranksPerNode, count, 4);
    Layout flat = layout.withNodes(1, TreePattern.TREE);
    Schedule between =
        across == Algorithm.RING
            ? new RingSchedule(flat, nodes, shard, 4)
            : new TreeSchedule(flat, nodes, shard, 4);
    Ranks.run(
        nodes * ranksPerNode,
        ReferenceOptions.defaults().withAlgorithm(across).withLayout(flat),
        (comm, stream) -> {
          int place = comm.rank() % ranksPerNode;
          int node = comm.rank() / ranksPerNode;
          try (Communicator within = comm.split(node, place);
              Communicator heads = comm.split(place, node);
              Buffer data = comm.newBuffer(DataType.FLOAT32, count)) {
            Buffer own = data.slice((long) place * shard, shard);
            data.copyFromAsync(inputs(comm.rank(), count), stream);
            within.reduceScatter(data, own, ReduceOp.SUM, stream);
            heads.allReduce(own, own, ReduceOp.SUM, stream);
            within.allGather(own, data, stream);
            stream.synchronize();
            assertSums(comm, data, stream);
            assertEquals(elementsSent(inside, place), carried(within) * SLICE, "within the node");
            assertEquals(slicesSent(between, node), carried(heads), "across the nodes");
          }
        });
  }

  static Stream<Arguments> hierarchies() {
    return Stream.of(Algorithm.RING, Algorithm.TREE)
        .flatMap(
            across ->
                Stream.of(
                    Arguments.of(across, 2, 2),
                    Arguments.of(across, 3, 2),
                    Arguments.of(across, 2, 4),
                    Arguments.of(across, 4, 3)));
  }

  private static MemorySegment inputs(int rank, int count) {
    float[] values = new float[count];
    for (int i = 0; i < count; i++) {
      values[i] = (rank + 1) * (i % 1009);
    }
    return MemorySegment.ofArray(values);
  }

  private static void assertSums(Communicator comm, Buffer data, io.nccl4j.Stream stream) {
    float[] sums = new float[(int) data.count()];
    data.copyTo(MemorySegment.ofArray(sums), stream);
    stream.synchronize();
    int factor = comm.size() * (comm.size() + 1) / 2;
    for (int i = 0; i < sums.length; i++) {
      assertEquals((float) factor * (i % 1009), sums[i]);
    }
  }

  private static long elementsSent(Schedule schedule, int rank) {
    return IntStream.range(0, schedule.channels())
        .mapToLong(channel -> schedule.elementsSent(channel, rank))
        .sum();
  }

  private static long slicesSent(Schedule schedule, int rank) {
    return IntStream.range(0, schedule.channels())
        .mapToLong(channel -> schedule.slicesSent(channel, rank))
        .sum();
  }

  /** Returns the number of slices that a rank has sent on all links of a communicator. */
  private static long carried(Communicator comm) {
    CommunicatorState communicator =
        ((ReferenceCommunicator) Contract.get().driver(comm)).hostedRank().communicator();
    long slices = 0;
    for (int channel = 0; channel < communicator.options().layout().channels(); channel++) {
      for (int to = 0; to < comm.size(); to++) {
        slices += sent(communicator, Route.RING, channel, comm.rank(), to);
        slices += sent(communicator, Route.UP, channel, comm.rank(), to);
        slices += sent(communicator, Route.DOWN, channel, comm.rank(), to);
      }
    }
    return slices;
  }

  private static CommunicatorState run(Algorithm algorithm, Layout layout, int ranks, int count) {
    AtomicReference<CommunicatorState> communicator = new AtomicReference<>();
    Ranks.run(
        ranks,
        ReferenceOptions.defaults().withAlgorithm(algorithm).withLayout(layout),
        (comm, stream) -> {
          try (Buffer data = comm.newBuffer(DataType.FLOAT32, count)) {
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            stream.synchronize();
          }
          communicator.set(
              ((ReferenceCommunicator) Contract.get().driver(comm)).hostedRank().communicator());
        });
    return communicator.get();
  }

  private static void assertCarried(
      Schedule schedule, CommunicatorState communicator, Route one, Route other) {
    for (int channel = 0; channel < schedule.channels(); channel++) {
      long perChannel = schedule.end(channel) - schedule.begin(channel);
      boolean full = perChannel % (schedule.ranks() * CHUNK) == 0;
      for (int from = 0; from < schedule.ranks(); from++) {
        long all = 0;
        for (int to = 0; to < schedule.ranks(); to++) {
          long slices = sent(communicator, one, channel, from, to);
          if (other != one) {
            slices += sent(communicator, other, channel, from, to);
          }
          String link = "channel " + channel + ", rank " + from + " to rank " + to;
          assertCarried(schedule.elementsBetween(channel, from, to), slices, full, link);
          all += slices;
        }
        assertEquals(schedule.slicesSent(channel, from), all, "channel " + channel);
      }
    }
  }

  /** Links count slices; if all of them are full, the number of elements follows from that. */
  private static void assertCarried(long elements, long slices, boolean full, String link) {
    if (full) {
      assertEquals(elements, slices * SLICE, link);
    } else {
      assertTrue(elements <= slices * SLICE, link);
      assertTrue(elements >= slices, link);
    }
  }

  private static long sent(
      CommunicatorState communicator, Route route, int channel, int from, int to) {
    return communicator.links().sendLink(route, channel, from, to).sent();
  }
}
