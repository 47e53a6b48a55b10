package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.Recorded;
import io.nccl4j.fixtures.libraries.OnStandIn;
import java.util.List;
import jdk.jfr.consumer.RecordedEvent;
import org.junit.jupiter.api.Test;

/** What keeps a recording from hearing of the end of operations is not theirs. */
@OnStandIn
class ClosedWhileRecordedTest {
  @Test
  void operationsWhoseStreamIsGoneWhenTheyAreLaunchedCountAndAreRecordedWithTheReason() {
    try (Recorded recorded = new Recorded();
        Backend backend = Backend.nccl();
        Communicator comm =
            backend.newCommunicator(backend.newUniqueId(), 1, 0, CommunicatorConfig.defaults());
        Buffer value = comm.newBuffer(DataType.INT32, 1)) {
      Stream stream = comm.newStream();
      CheckedOperation call =
          new CheckedOperation(
              Operation.ALL_REDUCE,
              comm.core(),
              value,
              value,
              1,
              ReduceOp.SUM,
              Communicator.NO_PEER,
              stream);
      // As another thread may close it, against the rules, between the launch and what follows.
      assertDoesNotThrow(() -> LaunchTrace.record(call, stream::close));
      List<RecordedEvent> events = recorded.events("Collective", 1);
      assertEquals(1, events.size());
      assertEquals(1, events.getFirst().getLong("sequence"));
      String error = events.getFirst().getString("error");
      assertTrue(error != null && error.contains("closed"), error);
    }
  }
}
