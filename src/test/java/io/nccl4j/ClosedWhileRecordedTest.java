package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.Recorded;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.spi.CommunicatorDriver;
import java.util.List;
import jdk.jfr.consumer.RecordedEvent;
import org.junit.jupiter.api.Test;

/** Tests that operations succeed even if a recording cannot observe their completion. */
@OnStandIn
class ClosedWhileRecordedTest {
  @Test
  void operationOnStreamClosedDuringLaunchIsRecordedWithError() {
    try (Recorded recorded = new Recorded();
        Backend backend = Backend.nccl();
        Communicator comm =
            backend.newCommunicator(backend.newUniqueId(), 1, 0, CommunicatorConfig.defaults());
        Buffer value = comm.newBuffer(DataType.INT32, 1)) {
      Stream stream = comm.newStream();
      Call call =
          Call.of(
              Operation.ALL_REDUCE,
              comm.core(),
              value,
              value,
              1,
              ReduceOp.SUM,
              CommunicatorDriver.NO_PEER,
              stream);
      // Another thread might, against the rules, close the stream right after the launch.
      assertDoesNotThrow(() -> LaunchTrace.record(List.of(call), new long[] {1}, stream::close));
      List<RecordedEvent> events = recorded.events("Collective", 1);
      assertEquals(1, events.size());
      assertEquals(1, events.getFirst().getLong("sequence"));
      String error = events.getFirst().getString("error");
      assertTrue(error != null && error.contains("closed"), error);
    }
  }
}
