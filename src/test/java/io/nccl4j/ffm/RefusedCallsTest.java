package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.Recorded;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import jdk.jfr.consumer.RecordedEvent;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Tests that calls refused by NCCL get no sequence number, recorded or not. */
@OnStandIn
class RefusedCallsTest {
  private static final int INVALID_USAGE = 5;
  private static final int SYSTEM_ERROR = 2;

  private Backend backend;
  private Communicator comm;
  private Stream stream;
  private Buffer value;
  private Buffer sent;
  private Buffer received;

  @BeforeEach
  void open() {
    StandIn.reset();
    backend = Backend.nccl();
    comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, CommunicatorConfig.defaults());
    stream = comm.newStream();
    value = comm.newBuffer(DataType.INT32, 4);
    sent = comm.newBuffer(DataType.INT32, 4);
    received = comm.newBuffer(DataType.INT32, 4);
  }

  @AfterEach
  void close() {
    StandIn.reset();
    stream.synchronize();
    value.close();
    sent.close();
    received.close();
    comm.close();
    stream.close();
    backend.close();
  }

  private void sum() {
    comm.allReduce(value, value, ReduceOp.SUM, stream);
  }

  private void pair() {
    comm.send(sent, 0, stream);
    comm.recv(received, 0, stream);
  }

  private void refused(Runnable calls) {
    StandIn.fail("ncclAllReduce", INVALID_USAGE, 1);
    assertThrows(NcclInvalidUsageException.class, calls::run);
  }

  /** Enqueues five collectives, a send and a receive, with refused calls between them. */
  private void callAndBeRefused() {
    refused(this::sum);
    for (int i = 0; i < 3; i++) {
      sum();
    }
    refused(this::sum);
    refused(
        () ->
            Group.run(
                () -> {
                  comm.broadcast(sent, 0, stream);
                  pair();
                  sum();
                }));
    Group.run(
        () -> {
          comm.broadcast(sent, 0, stream);
          pair();
          sum();
        });
  }

  @ParameterizedTest(name = "recorded {0}")
  @ValueSource(booleans = {true, false})
  void refusedCallsAreNotCounted(boolean recorded) {
    if (recorded) {
      try (Recorded _ = new Recorded()) {
        callAndBeRefused();
        stream.synchronize();
      }
    } else {
      callAndBeRefused();
    }
    try (Recorded after = new Recorded()) {
      sum();
      Group.run(this::pair);
      List<RecordedEvent> events = after.events("Collective", 3);
      assertEquals(List.of(6L), sequences(events, "allReduce"));
      assertEquals(List.of(2L), sequences(events, "send"));
      assertEquals(List.of(2L), sequences(events, "recv"));
    }
  }

  @Test
  void refusedCallsAreRecordedWithoutSequenceNumber() {
    try (Recorded recorded = new Recorded()) {
      callAndBeRefused();
      stream.synchronize();
      List<RecordedEvent> events = recorded.events("Collective", 13);
      assertEquals(List.of(0L, 1L, 2L, 3L, 0L, 0L, 5L), sequences(events, "allReduce"));
      assertEquals(List.of(0L, 4L), sequences(events, "broadcast"));
      assertEquals(List.of(0L, 1L), sequences(events, "send"));
      assertEquals(List.of(0L, 1L), sequences(events, "recv"));
      assertEquals(6, events.stream().filter(event -> event.getString("error") != null).count());
    }
  }

  @ParameterizedTest(name = "recorded {0}")
  @ValueSource(booleans = {true, false})
  void callsThatFailOtherwiseAreCounted(boolean recorded) {
    StandIn.fail("ncclAllReduce", SYSTEM_ERROR, 1);
    if (recorded) {
      try (Recorded _ = new Recorded()) {
        assertThrows(NcclException.class, this::sum);
      }
    } else {
      assertThrows(NcclException.class, this::sum);
    }
    try (Recorded after = new Recorded()) {
      sum();
      assertEquals(List.of(2L), sequences(after.events("Collective", 1), "allReduce"));
    }
  }

  @ParameterizedTest(name = "recorded {0}")
  @ValueSource(booleans = {true, false})
  void failedCall_hasOperationAndSequenceNumber(boolean recorded) {
    try (Recorded _ = recorded ? new Recorded() : null) {
      sum();
      StandIn.fail("ncclAllReduce", SYSTEM_ERROR, 1);
      NcclException again = assertThrows(NcclException.class, this::sum);
      assertEquals(Optional.of(Operation.ALL_REDUCE), again.operation());
      assertEquals(OptionalLong.of(2), again.sequenceNumber());
      assertTrue(again.getMessage().contains("collective 2 of " + comm), again::toString);
      StandIn.fail("ncclBroadcast", SYSTEM_ERROR, 1);
      NcclException other =
          assertThrows(NcclException.class, () -> comm.broadcast(sent, received, 0, stream));
      assertEquals(Optional.of(Operation.BROADCAST), other.operation());
      assertEquals(OptionalLong.of(3), other.sequenceNumber());
      StandIn.fail("ncclAllReduce", INVALID_USAGE, 1);
      NcclException refused = assertThrows(NcclException.class, this::sum);
      assertEquals(Optional.of(Operation.ALL_REDUCE), refused.operation());
      assertEquals(OptionalLong.empty(), refused.sequenceNumber(), "a refused call is not counted");
    }
  }

  @ParameterizedTest(name = "recorded {0}")
  @ValueSource(booleans = {true, false})
  void failedGroup_hasItsFirstSequenceNumber(boolean recorded) {
    try (Recorded _ = recorded ? new Recorded() : null) {
      sum();
      StandIn.fail("ncclGroupEnd", SYSTEM_ERROR, 1);
      NcclException failed =
          assertThrows(
              NcclException.class,
              () ->
                  Group.run(
                      () -> {
                        comm.broadcast(sent, 0, stream);
                        sum();
                      }));
      assertEquals(Optional.empty(), failed.operation());
      assertEquals(OptionalLong.of(2), failed.sequenceNumber());
      assertEquals(Set.of(), failed.failedRanks());
      assertEquals(Set.of(), failed.missingRanks());
    }
  }

  private static List<Long> sequences(List<RecordedEvent> events, String operation) {
    return events.stream()
        .filter(event -> event.getString("operation").equals(operation))
        .map(event -> event.getLong("sequence"))
        .toList();
  }
}
