package io.nccl4j.tools.flight;

import static io.nccl4j.tools.cli.JsonTree.object;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Verdicts on logs that no small program produces, or only by chance. */
class ComparisonTest {
  private static final long SECOND = 1_000_000_000;

  private final Map<String, Map<Integer, RankLog>> logs = new TreeMap<>();

  private static Map<?, ?> collective(long number, long second, boolean completed) {
    return entry("all_reduce", number, number - 1, second, completed, -1);
  }

  private static Map<?, ?> message(
      String operation, long number, long before, long second, boolean completed, int peer) {
    return entry(operation, number, before, second, completed, peer);
  }

  private static Map<?, ?> entry(
      String operation, long number, long before, long second, boolean completed, long peer) {
    return object(
        "is_p2p",
        peer >= 0,
        "profiling_name",
        "nccl:" + operation,
        "collective_seq_id",
        number,
        "record_id",
        before,
        "count",
        10L,
        "input_dtypes",
        List.of("float32"),
        "reduction",
        "none",
        "peer",
        peer,
        "time_created_ns",
        second * SECOND,
        "state",
        completed ? "completed" : "scheduled");
  }

  /** A log that was written after 100 s. */
  private void log(String communicator, int rank, int size, Map<?, ?>... entries)
      throws IOException {
    log(communicator, rank, size, 100, 0, rank, entries);
  }

  private void log(
      String communicator,
      int rank,
      int size,
      long written,
      long overwritten,
      long process,
      Map<?, ?>... entries)
      throws IOException {
    Map<String, Object> about =
        object(
            "communicator",
            communicator,
            "name",
            "train",
            "backend",
            "nccl",
            "rank",
            (long) rank,
            "size",
            (long) size,
            "device",
            0L,
            "host",
            "a",
            "process",
            String.valueOf(process),
            "written_ns",
            written * SECOND,
            "overwritten",
            overwritten);
    RankLog log = RankLog.of(object("nccl4j", about, "entries", List.of(entries)), false);
    logs.computeIfAbsent(communicator, c -> new TreeMap<>()).put(rank, log);
  }

  /** Returns the findings of the communicator that was used last. */
  private List<String> findings() {
    return Comparison.all(logs.values()).getFirst().findings().stream()
        .map(found -> found.kind().label() + " " + found.ranks() + " " + found.number())
        .toList();
  }

  private String text() {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    PrintStream lines = new PrintStream(out, true, StandardCharsets.UTF_8);
    Comparison.all(logs.values()).forEach(comparison -> Reports.text(comparison, lines));
    return out.toString(StandardCharsets.UTF_8);
  }

  private static Map<?, ?>[] completed(long first, long last) {
    return LongStream.rangeClosed(first, last)
        .mapToObj(i -> collective(i, 5, true))
        .toArray(Map<?, ?>[]::new);
  }

  @Test
  void rankWhoseCollectivesWereOverwrittenByMessagesIsNotBehind() throws IOException {
    log("c", 0, 2, completed(1, 4));
    log("c", 1, 2, 100, 500, 1, message("send", 9, 4, 5, true, 0));
    assertEquals(List.of(), findings());
    assertTrue(text().contains("     4          -"), this::text);
  }

  @Test
  void rankFarBehindIsNamed() throws IOException {
    log("c", 0, 2, 100, 3000, 0, completed(3001, 3010));
    log("c", 1, 2, completed(1, 4));
    assertEquals(List.of("behind [1] 3001"), findings());
    assertTrue(text().contains("rank 1 (process 1 on a) has called 4 collectives"), this::text);
  }

  @Test
  @Timeout(10)
  void numbersFarApartTakeNoTime() throws IOException {
    for (int rank = 0; rank < 2; rank++) {
      log("c", rank, 2, collective(1, 1, true), collective(Long.MAX_VALUE - 1, 2, true));
    }
    assertEquals(List.of(), findings());
    text();
  }

  @Test
  void rankWithOlderDumpIsNotBlamed() throws IOException {
    log("c", 0, 2, collective(1, 1, true), collective(2, 60, false));
    log("c", 1, 2, 50, 0, 1, collective(1, 1, true));
    assertEquals(List.of("older dump [1] 2"), findings());
    assertTrue(
        text()
            .contains(
                "the dump of rank 1 was written 10.0 s before others called collective 2, all_reduce(10 float32)"),
        this::text);
  }

  @Test
  void waitIsTimed() throws IOException {
    log("c", 0, 2, collective(1, 1, true), collective(2, 60, false));
    log("c", 1, 2, collective(1, 1, true));
    assertEquals(List.of("behind [1] 2"), findings());
    assertTrue(
        text().contains("rank 0 waits in collective 2, all_reduce(10 float32) for 40.0 s"),
        this::text);
  }

  @Test
  void lateRankThatWaitsElsewhereIsExplained() throws IOException {
    log("world", 0, 2, 100, 0, 10, collective(1, 50, false));
    log("world", 1, 2, 100, 0, 11);
    // In the other communicator, the ranks have other numbers.
    log("pair", 1, 2, 100, 0, 12);
    log("pair", 0, 2, 100, 0, 11, collective(1, 40, false));
    assertEquals(List.of("behind [1] 1"), findings());
    assertTrue(
        text()
            .contains(
                "rank 1 (process 11 on a) has called 0 collectives and waits in all_reduce(10 float32) of communicator pair for 60.0 s"),
        this::text);
  }

  @Test
  void rankThatReceivedNothingIsNamed() throws IOException {
    log("c", 0, 2, message("send", 1, 0, 5, false, 1));
    log("c", 1, 2);
    assertEquals(List.of("message [1] 1"), findings());
  }

  @Test
  void overwrittenReceiveIsNotMissed() throws IOException {
    log("c", 0, 2, message("send", 1, 0, 5, false, 1));
    log("c", 1, 2, 100, 1, 1);
    assertEquals(List.of(), findings());
  }

  @Test
  void receiveAfterOlderDumpIsNotMissed() throws IOException {
    log("c", 0, 2, message("recv", 1, 0, 60, false, 1));
    log("c", 1, 2, 50, 0, 1);
    assertEquals(List.of("older dump [1] 1"), findings());
  }

  @Test
  void manyRanksBehindAreNotListedOneByOne() throws IOException {
    log("c", 0, 64, collective(1, 1, false));
    for (int rank = 1; rank < 64; rank++) {
      log("c", rank, 64);
    }
    assertEquals(List.of("behind " + IntStream.range(1, 64).boxed().toList() + " 1"), findings());
    assertEquals(
        "behind: ranks 1 to 63 have called 0 collectives; rank 0 waits in collective 1, all_reduce(10 float32) for 99.0 s",
        text().lines().toList().get(1));
    assertTrue(text().lines().allMatch(line -> line.length() < 130), this::text);
  }

  @Test
  void verdictFollowsTitle() throws IOException {
    log("c", 0, 1);
    assertEquals(
        List.of(
            "communicator c (train), 1 rank, nccl",
            "no difference: no rank has called anything",
            "  rank  host   process    called  completed  waits in",
            "     0  a            0         0          0  -",
            ""),
        new ArrayList<>(text().lines().toList()));
  }
}
