package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;

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
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** The links carry exactly the slices of the schedule of an all-reduce. */
class ExecutedScheduleTest {
  static Stream<Arguments> runs() {
    Layout small = Layout.defaults().withChunkBytes(2048).withSliceBytes(512);
    return Stream.of(2, 3, 5, 8)
        .flatMap(
            ranks ->
                Stream.of(
                        small,
                        small.withChannels(4).withProtocol(Protocol.LL),
                        small.withNodes(2, TreePattern.BALANCED_TREE),
                        small.withRingOrders(List.of(reversed(ranks))))
                    .flatMap(
                        layout ->
                            Stream.of(1, 999, 50_001)
                                .map(count -> Arguments.of(ranks, layout, count))));
  }

  /** Returns the ranks in reverse order, which is another ring for three or more ranks. */
  private static List<Integer> reversed(int ranks) {
    return Stream.iterate(ranks - 1, rank -> rank - 1).limit(ranks).toList();
  }

  @ParameterizedTest
  @MethodSource("runs")
  void ringLinksCarryTheSlicesOfTheSchedule(int ranks, Layout layout, int count) {
    Schedule schedule = new RingSchedule(layout, ranks, count, 4);
    run(Algorithm.RING, ranks, layout, count, schedule);
  }

  @ParameterizedTest
  @MethodSource("runs")
  void treeLinksCarryTheSlicesOfTheSchedule(int ranks, Layout layout, int count) {
    Schedule schedule = new TreeSchedule(layout, ranks, count, 4);
    run(Algorithm.TREE, ranks, layout, count, schedule);
  }

  private static void run(
      Algorithm algorithm, int ranks, Layout layout, int count, Schedule schedule) {
    ReferenceOptions options =
        ReferenceOptions.defaults().withAlgorithm(algorithm).withLayout(layout);
    CyclicBarrier allDone = new CyclicBarrier(ranks);
    Ranks.run(
        ranks,
        options,
        (comm, stream) -> {
          try (Buffer data = comm.newBuffer(DataType.FLOAT32, count)) {
            comm.allReduce(data, data, ReduceOp.SUM, stream);
            stream.synchronize();
          }
          for (int channel = 0; channel < layout.channels(); channel++) {
            long expected =
                channel < schedule.channels() ? schedule.slicesSent(channel, comm.rank()) : 0;
            assertEquals(expected, sent(comm, channel), "channel " + channel);
          }
          allDone.await(60, TimeUnit.SECONDS);
        });
  }

  /** Returns the number of slices that a rank has sent on a channel. */
  private static long sent(Communicator comm, int channel) {
    CommunicatorState communicator =
        ((ReferenceCommunicator) Contract.get().driver(comm)).hostedRank().communicator();
    long sent = 0;
    for (int peer = 0; peer < comm.size(); peer++) {
      for (Route route : List.of(Route.RING, Route.UP, Route.DOWN)) {
        sent += communicator.links().sendLink(route, channel, comm.rank(), peer).sent();
      }
    }
    return sent;
  }
}
