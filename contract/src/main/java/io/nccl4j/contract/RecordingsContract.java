package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.Recorded;
import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import jdk.jfr.consumer.RecordedEvent;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;

/** The events that a backend writes to the flight recorder. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class RecordingsContract {
  abstract BackendUnderTest underTest();

  @BeforeEach
  void needsTwoRanksInThisProcess() {
    assumeTrue(underTest().maxRanks() > 1, "needs two ranks");
    // A recording has the ranks of its own process only.
    ProcessRank.assumeNone(2);
  }

  private static List<RecordedEvent> ofRank(List<RecordedEvent> events, int rank) {
    return events.stream()
        .filter(event -> event.getInt("rank") == rank)
        .sorted(Comparator.comparingLong(event -> event.getLong("sequence")))
        .toList();
  }

  private static void sum(Rank rank, Buffer value) {
    rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream());
  }

  @Test
  void everyRankRecordsCollectiveWithItsBytes() {
    try (Ranks ranks = Ranks.unshared(underTest(), 2);
        Recorded recorded = new Recorded()) {
      ranks.each(
          rank -> {
            Buffer one = rank.allocate(DataType.FLOAT32, 1000);
            Buffer all = rank.allocate(DataType.FLOAT32, 2000);
            rank.comm().allGather(one, all, rank.stream());
            rank.comm().reduce(one, one, ReduceOp.MAX, 1, rank.stream());
          });
      List<RecordedEvent> events = recorded.events("Collective", 4);
      assertEquals(4, events.size());
      for (int r = 0; r < 2; r++) {
        RecordedEvent gather = ofRank(events, r).getFirst();
        assertEquals("allGather", gather.getString("operation"));
        assertEquals(1, gather.getLong("sequence"));
        assertEquals(2, gather.getInt("ranks"));
        assertEquals(r, gather.getInt("firstRank"));
        assertEquals(-1, gather.getInt("peer"));
        assertEquals("FLOAT32", gather.getString("type"));
        assertNull(gather.getString("reduction"));
        assertEquals(1000, gather.getLong("count"));
        assertEquals(4000, gather.getLong("bytes"));
        assertEquals(0, gather.getLong("group"));
        assertNull(gather.getString("error"));
        RecordedEvent reduce = ofRank(events, r).getLast();
        assertEquals("reduce", reduce.getString("operation"));
        assertEquals(2, reduce.getLong("sequence"));
        assertEquals(1, reduce.getInt("peer"));
        assertEquals("max", reduce.getString("reduction"));
        assertEquals(4000, reduce.getLong("bytes"));
        assertEquals(gather.getLong("stream"), reduce.getLong("stream"));
      }
      assertEquals(1, distinct(events, "communicator").size());
      assertEquals(2, distinct(events, "stream").size());
    }
  }

  private static Set<Object> distinct(List<RecordedEvent> events, String field) {
    return events.stream().map(event -> event.<Object>getValue(field)).collect(Collectors.toSet());
  }

  @Test
  void operationsReportQueuedAndRunningTime() {
    try (Ranks ranks = Ranks.unshared(underTest(), 2);
        Recorded recorded = new Recorded()) {
      ranks.each(
          rank -> {
            for (int i = 0; i < 3; i++) {
              sum(rank, rank.allocate(DataType.INT32, 1 << 20));
            }
          });
      for (RecordedEvent event : recorded.events("Collective", 6)) {
        Duration queued = event.getDuration("queued");
        Duration ran = event.getDuration().minus(queued);
        assertTrue(!queued.isNegative() && ran.isPositive(), event::toString);
      }
    }
  }

  @Test
  void unrecordedCollectivesAdvanceTheSequence() {
    try (Ranks ranks = Ranks.unshared(underTest(), 2)) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(1, 2);
            Buffer another = rank.ints(3);
            for (int i = 0; i < 40; i++) {
              sum(rank, value);
            }
            Group.run(
                () -> {
                  sum(rank, value);
                  rank.comm().broadcast(another, 0, rank.stream());
                });
          });
      try (Recorded recorded = new Recorded()) {
        ranks.each(
            rank -> {
              Buffer value = rank.ints(1, 2);
              for (int i = 0; i < 5; i++) {
                sum(rank, value);
              }
            });
        List<RecordedEvent> events = recorded.events("Collective", 10);
        assertEquals(10, events.size());
        for (int r = 0; r < 2; r++) {
          assertEquals(
              List.of(43L, 44L, 45L, 46L, 47L),
              ofRank(events, r).stream().map(event -> event.getLong("sequence")).toList());
        }
      }
    }
  }

  @Test
  void repeatedCallsAreRecordedAfterRecordingStarts() {
    try (Ranks ranks = Ranks.unshared(underTest(), 2)) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(1);
            for (int i = 0; i < 10; i++) {
              sum(rank, value);
            }
            rank.stream().synchronize();
            try (Recorded recorded = new Recorded()) {
              for (int i = 0; i < 10; i++) {
                sum(rank, value);
              }
              rank.stream().synchronize();
              // The recording also contains the other rank's events.
              assertEquals(
                  10,
                  recorded
                      .events("Collective", event -> event.getInt("rank") == rank.rank(), 10)
                      .size());
            }
          });
    }
  }

  @Test
  void groupedOperationsShareTheGroupNumber() {
    try (Ranks ranks = Ranks.unshared(underTest(), 2);
        Recorded recorded = new Recorded()) {
      ranks.each(
          rank -> {
            int other = 1 - rank.rank();
            Buffer from = rank.ints(1, 2, 3);
            Buffer to = rank.ints(0, 0, 0);
            for (int i = 0; i < 2; i++) {
              Group.run(
                  () -> {
                    rank.comm().send(from, other, rank.stream());
                    rank.comm().recv(to, other, rank.stream());
                  });
            }
          });
      List<RecordedEvent> events = recorded.events("Collective", 8);
      assertEquals(8, events.size());
      assertEquals(4, distinct(events, "group").size());
      for (RecordedEvent event : events) {
        assertNotEquals(0, event.getLong("group"));
        assertEquals(1 - event.getInt("rank"), event.getInt("peer"));
        assertEquals(12, event.getLong("bytes"));
      }
      for (String operation : List.of("send", "recv")) {
        assertEquals(
            List.of(1L, 2L),
            ofRank(events, 0).stream()
                .filter(event -> event.getString("operation").equals(operation))
                .map(event -> event.getLong("sequence"))
                .toList());
      }
    }
  }

  @Test
  void operationIsQueuedUntilThePreviousOneCompletes() {
    try (Recorded recorded = new Recorded();
        StuckCollective stuck = StuckCollective.start(underTest())) {
      Buffer second = stuck.rank().ints(1);
      stuck.comm().allReduce(second, second, ReduceOp.SUM, stuck.stream());
      long enqueued = System.nanoTime();
      Buffer late = stuck.absent().ints(0);
      stuck.absent().stream().synchronize();
      long queuedNanos = System.nanoTime() - enqueued;
      stuck.join();
      sum(stuck.absent(), late);
      stuck.stream().synchronize();
      RecordedEvent event = ofRank(recorded.events("Collective", 6), 0).getLast();
      assertEquals(3, event.getLong("sequence"));
      assertTrue(event.getDuration("queued").toNanos() >= queuedNanos, event::toString);
    }
  }

  @Test
  void abortedOperationIsRecordedWithItsError() {
    try (Recorded recorded = new Recorded()) {
      try (StuckCollective stuck = StuckCollective.start(underTest())) {
        stuck.comm().abort();
      }
      RecordedEvent event = ofRank(recorded.events("Collective", 3), 0).getLast();
      assertEquals(2, event.getLong("sequence"));
      assertTrue(event.getString("error").contains("abort"), event::toString);
    }
  }

  @Test
  void communicatorLifecycleIsRecorded() {
    try (Recorded recorded = new Recorded()) {
      try (Ranks ranks = Ranks.of(underTest(), 2, underTest().config().withName("first"))) {
        ranks.each(
            rank -> {
              rank.comm().split(0, 0).close();
              Communicator single = rank.comm().split(rank.rank(), 0);
              single.abort();
            });
      }
      List<RecordedEvent> events = recorded.events("Communicator");
      String root = step(events, "init", 0).getString("communicator");
      for (int r = 0; r < 2; r++) {
        RecordedEvent init = step(events, "init", r);
        assertEquals("first", init.getString("name"));
        assertEquals(root, init.getString("communicator"));
        assertEquals(2, init.getInt("ranks"));
        assertNull(init.getString("parent"));
        assertEquals(r, step(events, "abort", r).getInt("firstRank"));
        assertEquals(root + "/split2." + r, step(events, "abort", r).getString("communicator"));
      }
      assertEquals(
          Set.of(root, root + "/split1.0"), distinct(ofStep(events, "close"), "communicator"));
      assertEquals(Set.of(root), distinct(ofStep(events, "split"), "parent"));
      assertEquals(4, ofStep(events, "split").size());
    }
  }

  private static List<RecordedEvent> ofStep(List<RecordedEvent> events, String step) {
    return events.stream().filter(event -> event.getString("step").equals(step)).toList();
  }

  private static RecordedEvent step(List<RecordedEvent> events, String step, int firstRank) {
    return ofStep(events, step).stream()
        .filter(event -> event.getInt("firstRank") == firstRank)
        .findAny()
        .orElseThrow();
  }

  @Test
  void graphLaunchesAdvanceTheSequence() {
    try (Ranks ranks = Ranks.unshared(underTest(), 2);
        Recorded recorded = new Recorded()) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(1);
            rank.stream().synchronize();
            try (Graph graph = captured(rank.stream(), () -> sum(rank, value))) {
              graph.launch(rank.stream());
              graph.launch(rank.stream());
              sum(rank, value);
              rank.stream().synchronize();
            }
          });
      List<RecordedEvent> captures = ofStep(recorded.events("Graph"), "capture");
      assertEquals(2, captures.size());
      captures.forEach(capture -> assertEquals(1, capture.getInt("operations")));
      recorded.events("Collective", 2);
      for (int r = 0; r < 2; r++) {
        List<RecordedEvent> own = ofRank(recorded.events("Collective"), r);
        assertEquals(3, own.getLast().getLong("sequence"));
      }
    }
  }

  private static Graph captured(Stream stream, Runnable body) {
    return Graph.capture(stream, body);
  }

  @Test
  void processEventIdentifiesItsClock() {
    try (Ranks ranks = Ranks.unshared(underTest(), 2);
        Recorded recorded = new Recorded()) {
      assertEquals(2, ranks.size());
      RecordedEvent process = recorded.events("Process", 1).getFirst();
      assertEquals(ProcessHandle.current().pid(), process.getLong("pid"));
      assertEquals(36, process.getString("clock").length(), process::toString);
    }
  }
}
