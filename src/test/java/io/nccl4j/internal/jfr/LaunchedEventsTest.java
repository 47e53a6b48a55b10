package io.nccl4j.internal.jfr;

import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Which event gets what NCCL reports. */
class LaunchedEventsTest {
  private static CollectiveEvent event(String operation, int rank, long count) {
    CollectiveEvent event = new CollectiveEvent();
    event.operation = operation;
    event.rank = rank;
    event.count = count;
    return event;
  }

  @Test
  void callsAreReportedInOrder() {
    CollectiveEvent send = event("send", 0, 1);
    CollectiveEvent recv = event("recv", 0, 2);
    LaunchedEvents.during(
        Arrays.asList(send, null, recv),
        () -> {
          LaunchedEvents.called(7, "Send", 0, 1);
          LaunchedEvents.called(8, "AllReduce", 0, 1);
          LaunchedEvents.called(9, "Recv", 0, 2);
          LaunchedEvents.called(10, "Recv", 0, 2);
          assertSame(send, LaunchedEvents.of(7));
          assertNull(LaunchedEvents.of(8));
          assertSame(recv, LaunchedEvents.of(9));
          assertNull(LaunchedEvents.of(10));
        });
    assertNull(LaunchedEvents.of(7));
    LaunchedEvents.called(7, "Send", 0, 1);
    assertNull(LaunchedEvents.of(7));
  }

  @ParameterizedTest
  @CsvSource({"Reduce, 0, 4", "AllReduce, 1, 4", "AllReduce, 0, 5"})
  void otherCallsThanThoseExpectedTellNothing(String function, int rank, long count) {
    LaunchedEvents.during(
        List.of(event("allReduce", 0, 4), event("allReduce", 0, 4)),
        () -> {
          LaunchedEvents.called(7, function, rank, count);
          LaunchedEvents.called(8, "AllReduce", 0, 4);
          assertNull(LaunchedEvents.of(7));
          assertNull(LaunchedEvents.of(8));
        });
  }
}
