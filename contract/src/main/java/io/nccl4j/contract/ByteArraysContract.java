package io.nccl4j.contract;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.Communicator;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.Stream;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** The exchange of byte arrays whose lengths differ. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class ByteArraysContract {
  private static final int MIB = 1 << 20;

  abstract BackendUnderTest underTest();

  List<Integer> rankCounts() {
    return underTest().rankCounts(1, 2, 3, 4);
  }

  /** Returns another text for each rank; that of rank 1 is empty. */
  private static byte[] text(int rank) {
    return rank == 1 ? new byte[0] : ("rank " + "x".repeat(300 * rank) + rank).getBytes(UTF_8);
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void everyRankGetsTheRootsBytes(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            for (int root = 0; root < n; root++) {
              byte[] value = rank.rank() == root ? text(root) : null;
              byte[] got = rank.comm().broadcastBytes(value, root, rank.stream());
              assertArrayEquals(text(root), got);
              assertNotSame(value, got);
            }
          });
    }
  }

  @ParameterizedTest(name = "{0} ranks")
  @MethodSource("rankCounts")
  void rootGetsTheBytesOfEachRank(int n) {
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            for (int root = 0; root < n; root++) {
              List<byte[]> got = rank.comm().gatherBytes(text(rank.rank()), root, rank.stream());
              assertEquals(
                  IntStream.range(0, rank.rank() == root ? n : 0)
                      .mapToObj(each -> new String(text(each), UTF_8))
                      .toList(),
                  got.stream().map(bytes -> new String(bytes, UTF_8)).toList());
            }
          });
    }
  }

  @Test
  void tooManyBytesAreRefusedOnEveryRank() {
    int n = Math.min(2, underTest().maxRanks());
    try (Ranks ranks = Ranks.of(underTest(), n)) {
      ranks.each(
          rank -> {
            byte[] tooLong = new byte[64 * MIB + 1];
            byte[] value = rank.rank() == 0 ? tooLong : new byte[7];
            String rule =
                "the ranks pass %d bytes; at most 67108864 can be exchanged as arrays, use buffers for more";
            refused(
                rule.formatted(64 * MIB + 1),
                () -> rank.comm().broadcastBytes(value, 0, rank.stream()));
            refused(
                rule.formatted(64 * MIB + 1 + 7 * (n - 1)),
                () -> rank.comm().gatherBytes(value, 0, rank.stream()));
            assertEquals(0, rank.comm().broadcastBytes(new byte[0], 0, rank.stream()).length);
          });
    }
  }

  @Test
  void invalidArgumentsAreRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Communicator comm = rank.comm();
      Stream stream = rank.stream();
      byte[] value = new byte[1];
      assertNamed("value", () -> comm.broadcastBytes(null, 0, stream));
      assertNamed("value", () -> comm.gatherBytes(null, 0, stream));
      assertNamed("stream", () -> comm.broadcastBytes(value, 0, null));
      assertNamed("stream", () -> comm.gatherBytes(value, 0, null));
      refused("root is 1; it must be from 0 to 0", () -> comm.broadcastBytes(value, 1, stream));
      refused("root is -1; it must be from 0 to 0", () -> comm.gatherBytes(value, -1, stream));
    }
  }

  @Test
  void exchangeInGroupOrCaptureIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), 1)) {
      Rank rank = ranks.rank(0);
      Communicator comm = rank.comm();
      Stream stream = rank.stream();
      byte[] value = new byte[1];
      Runnable broadcast = () -> comm.broadcastBytes(value, 0, stream);
      Runnable gather = () -> comm.gatherBytes(value, 0, stream);
      String inGroup = "Bytes waits for the other ranks; call it outside the group";
      assertIllegal("broadcast" + inGroup, () -> Group.run(broadcast));
      assertIllegal("gather" + inGroup, () -> Group.run(gather));
      String inCapture = "Bytes is not possible in Graph.capture; only operations are";
      assertIllegal("broadcast" + inCapture, () -> Graph.capture(stream, broadcast));
      assertIllegal("gather" + inCapture, () -> Graph.capture(stream, gather));
    }
  }

  private static void refused(String message, Executable use) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, use).getMessage());
  }

  private static void assertNamed(String argument, Executable use) {
    assertEquals(argument, assertThrows(NullPointerException.class, use).getMessage());
  }

  private static void assertIllegal(String message, Executable use) {
    assertEquals(message, assertThrows(IllegalStateException.class, use).getMessage());
  }
}
