package io.nccl4j.internal.schedule;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Compares pieces, which are accessed by index, with those of the ring's steps. */
class RingPiecesTest {
  private record Piece(int rank, long begin, long end, List<Integer> foldedFrom) {}

  static Stream<Arguments> operations() {
    Layout small = Layout.defaults().withChunkBytes(2048);
    return Stream.of(
            small,
            small.withChannels(5),
            Layout.defaults(),
            Layout.defaults().withProtocol(Protocol.LL128),
            small.withRingOrders(List.of(List.of(2, 0, 1), List.of(0, 1, 2))))
        .flatMap(
            layout ->
                Stream.of(2, 3, 8)
                    .flatMap(
                        ranks ->
                            Stream.of(1L, 17L, 3000L, 100_003L, 5_000_000L)
                                .map(count -> Arguments.of(layout, ranks, count))));
  }

  @ParameterizedTest
  @MethodSource("operations")
  void piecesAreThoseThatTheRankCompletes(Layout layout, int ranks, long count) {
    assertArrayEquals(
        completed(layout, ranks, count).toArray(), pieces(layout, ranks, count).toArray());
  }

  @Test
  void failedDivisionKeepsNoPieces() {
    RingPieces pieces = new RingPieces(Layout.defaults(), 2);
    pieces.divide(5_000_000, 4);
    int perRank = pieces.perRank();
    assertThrows(ArithmeticException.class, () -> pieces.divide(Long.MAX_VALUE / 8, 4));
    pieces.divide(5_000_000, 4);
    assertEquals(perRank, pieces.perRank());
  }

  private static List<Piece> completed(Layout layout, int ranks, long count) {
    RingSchedule schedule = new RingSchedule(layout, ranks, count, 4);
    List<Piece> found = new ArrayList<>();
    schedule.walk(
        step -> {
          if (step.action() == Action.RECV_REDUCE_COPY_SEND) {
            Ring ring = schedule.ring(step.channel());
            int position = ring.position(step.rank());
            List<Integer> order =
                IntStream.rangeClosed(1, ranks)
                    .mapToObj(turn -> ring.rank((position + turn) % ranks))
                    .toList();
            found.add(new Piece(step.rank(), step.begin(), step.end(), order));
          }
        });
    return sorted(found);
  }

  private static List<Piece> pieces(Layout layout, int ranks, long count) {
    RingPieces pieces = new RingPieces(layout, ranks);
    pieces.divide(count, 4);
    List<Piece> found = new ArrayList<>();
    for (int rank = 0; rank < ranks; rank++) {
      for (int number = 0; number < pieces.perRank(); number++) {
        pieces.moveTo(rank, number);
        if (pieces.count() > 0) {
          int[] order = Arrays.copyOfRange(pieces.order(), pieces.first(), pieces.first() + ranks);
          found.add(
              new Piece(
                  rank,
                  pieces.begin(),
                  pieces.begin() + pieces.count(),
                  Arrays.stream(order).boxed().toList()));
        }
      }
    }
    assertEquals(count, found.stream().mapToLong(piece -> piece.end - piece.begin).sum());
    return sorted(found);
  }

  private static List<Piece> sorted(List<Piece> pieces) {
    return pieces.stream().sorted(Comparator.comparingLong(Piece::begin)).toList();
  }
}
