package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.schedule.Layout;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Every collective on 1 to 17 ranks, with sizes that are not multiples of slices, chunks and
 * channels, and with data whose sums are exact.
 */
class CollectivesTest {
  // Small chunks and slices, so that small data needs many of them.
  private static final ReferenceOptions SMALL =
      ReferenceOptions.defaults()
          .withLayout(Layout.defaults().withChunkBytes(2048).withSliceBytes(512));

  static Stream<Arguments> allReduces() {
    return Stream.of(1, 2, 3, 4, 5, 7, 8, 11, 16, 17)
        .flatMap(
            ranks ->
                Stream.of(1, 13, 127, 1000, 65537, 100_003)
                    .flatMap(
                        count ->
                            Stream.of(Algorithm.RING, Algorithm.TREE)
                                .map(algorithm -> Arguments.of(ranks, count, algorithm))));
  }

  @ParameterizedTest
  @MethodSource("allReduces")
  void allReduceSumsDataOfEverySize(int ranks, int count, Algorithm algorithm) {
    Ranks.run(
        ranks,
        SMALL.withAlgorithm(algorithm),
        (comm, stream) -> {
          try (Buffer send = comm.newBuffer(DataType.FLOAT32, count);
              Buffer recv = comm.newBuffer(DataType.FLOAT32, count)) {
            fill(send, comm.rank());
            comm.allReduce(send, recv, ReduceOp.SUM, stream);
            comm.allReduce(send, send, ReduceOp.SUM, stream);
            stream.synchronize();
            for (int i = 0; i < count; i++) {
              assertEquals(sum(ranks, i), get(recv, i), "out of place, element " + i);
              assertEquals(sum(ranks, i), get(send, i), "in place, element " + i);
            }
          }
        });
  }

  static Stream<Arguments> sizes() {
    return Stream.of(1, 2, 3, 4, 7, 16, 17)
        .flatMap(ranks -> Stream.of(1, 13, 129, 5000).map(count -> Arguments.of(ranks, count)));
  }

  @ParameterizedTest
  @MethodSource("sizes")
  void broadcastAndReduceWorkFromEveryRoot(int ranks, int count) {
    Ranks.run(
        ranks,
        SMALL,
        (comm, stream) -> {
          try (Buffer send = comm.newBuffer(DataType.FLOAT32, count);
              Buffer recv = comm.newBuffer(DataType.FLOAT32, count)) {
            for (int root = 0; root < ranks; root++) {
              fill(send, comm.rank());
              comm.broadcast(comm.rank() == root ? send : null, recv, root, stream);
              stream.synchronize();
              for (int i = 0; i < count; i++) {
                assertEquals(value(root, i), get(recv, i));
              }
              comm.reduce(send, comm.rank() == root ? recv : null, ReduceOp.SUM, root, stream);
              stream.synchronize();
              for (int i = 0; comm.rank() == root && i < count; i++) {
                assertEquals(sum(ranks, i), get(recv, i));
              }
            }
          }
        });
  }

  @ParameterizedTest
  @MethodSource("sizes")
  void allGatherAndReduceScatterKeepRankOrder(int ranks, int count) {
    Ranks.run(
        ranks,
        SMALL,
        (comm, stream) -> {
          int rank = comm.rank();
          try (Buffer part = comm.newBuffer(DataType.FLOAT32, count);
              Buffer whole = comm.newBuffer(DataType.FLOAT32, (long) ranks * count)) {
            fill(part, rank);
            comm.allGather(part, whole, stream);
            stream.synchronize();
            for (int i = 0; i < ranks * count; i++) {
              assertEquals(value(i / count, i % count), get(whole, i));
            }
            comm.allGather(whole.slice((long) rank * count, count), whole, stream);
            comm.reduceScatter(whole, part, ReduceOp.SUM, stream);
            stream.synchronize();
            for (int i = 0; i < count; i++) {
              assertEquals(ranks * value(rank, i), get(part, i));
            }
            comm.reduceScatter(
                whole, whole.slice((long) rank * count, count), ReduceOp.MAX, stream);
            stream.synchronize();
            for (int i = 0; i < ranks * count; i++) {
              assertEquals(value(i / count, i % count), get(whole, i));
            }
          }
        });
  }

  @ParameterizedTest
  @MethodSource("sizes")
  void allToAllGatherAndScatterKeepRankOrder(int ranks, int count) {
    Ranks.run(
        ranks,
        SMALL,
        (comm, stream) -> {
          int rank = comm.rank();
          try (Buffer part = comm.newBuffer(DataType.FLOAT32, count);
              Buffer send = comm.newBuffer(DataType.FLOAT32, (long) ranks * count);
              Buffer recv = comm.newBuffer(DataType.FLOAT32, (long) ranks * count)) {
            fill(send, rank);
            comm.allToAll(send, recv, stream);
            stream.synchronize();
            for (int i = 0; i < ranks * count; i++) {
              assertEquals(value(i / count, rank * count + i % count), get(recv, i));
            }
            int root = ranks / 2;
            fill(part, rank);
            comm.gather(part, rank == root ? recv : null, root, stream);
            stream.synchronize();
            for (int i = 0; rank == root && i < ranks * count; i++) {
              assertEquals(value(i / count, i % count), get(recv, i));
            }
            comm.scatter(rank == root ? send : null, part, root, stream);
            stream.synchronize();
            for (int i = 0; i < count; i++) {
              assertEquals(value(root, rank * count + i), get(part, i));
            }
          }
        });
  }

  @ParameterizedTest
  @MethodSource("sizes")
  void groupedMessagesProgressTogether(int ranks, int count) {
    Ranks.run(
        ranks,
        SMALL,
        (comm, stream) -> {
          int rank = comm.rank();
          int rounds = 3;
          try (Buffer send = comm.newBuffer(DataType.FLOAT32, (long) rounds * ranks * count);
              Buffer recv = comm.newBuffer(DataType.FLOAT32, (long) rounds * ranks * count)) {
            fill(send, rank);
            Group.run(
                () -> {
                  for (int slot = 0; slot < rounds * ranks; slot++) {
                    comm.send(send.slice((long) slot * count, count), slot % ranks, stream);
                  }
                  for (int slot = 0; slot < rounds * ranks; slot++) {
                    comm.recv(recv.slice((long) slot * count, count), slot % ranks, stream);
                  }
                });
            stream.synchronize();
            for (int i = 0; i < rounds * ranks * count; i++) {
              int slot = i / count;
              int sent = (slot - slot % ranks + rank) * count + i % count;
              assertEquals(value(slot % ranks, sent), get(recv, i));
            }
          }
        });
  }

  private static float value(int rank, int index) {
    return (rank * 31 + index * 7) % 1009;
  }

  private static float sum(int ranks, int index) {
    float sum = 0;
    for (int rank = 0; rank < ranks; rank++) {
      sum += value(rank, index);
    }
    return sum;
  }

  private static void fill(Buffer buffer, int rank) {
    for (int i = 0; i < buffer.count(); i++) {
      DataType.FLOAT32.set(buffer.segment(), i, value(rank, i));
    }
  }

  private static float get(Buffer buffer, int index) {
    return (float) DataType.FLOAT32.get(buffer.segment(), index);
  }
}
