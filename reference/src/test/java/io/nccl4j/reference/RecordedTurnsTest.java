package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The recorded start times of operations that run one at a time. */
class RecordedTurnsTest {
  @TempDir Path folder;

  @Test
  void operationOnAnotherStreamBeginsAtItsTurn() throws IOException, InterruptedException {
    Path file = folder.resolve("turns.jfr");
    long behind;
    try (Recording recording = new Recording();
        Backend backend = Backend.reference(2)) {
      recording.start();
      List<Communicator> ranks = backend.newCommunicators(0, 1);
      try (Stream one = backend.newStream(0);
          Stream another = backend.newStream(0);
          Stream late = backend.newStream(1);
          Buffer value = ranks.get(0).newBuffer(DataType.INT32, 1);
          Buffer other = ranks.get(1).newBuffer(DataType.INT32, 1)) {
        ranks.get(0).allReduce(value, value, ReduceOp.SUM, one);
        ranks.get(0).allReduce(value, value, ReduceOp.SUM, another);
        long enqueued = System.nanoTime();
        // Long enough for the second stream's worker to reach its operation.
        Thread.sleep(50);
        behind = System.nanoTime() - enqueued;
        Thread.ofPlatform()
            .start(
                () -> {
                  ranks.get(1).allReduce(other, other, ReduceOp.SUM, late);
                  ranks.get(1).allReduce(other, other, ReduceOp.SUM, late);
                })
            .join();
        List.of(one, another, late).forEach(Stream::synchronize);
      }
      ranks.forEach(Communicator::close);
      recording.dump(file);
    }
    RecordedEvent second =
        RecordingFile.readAllEvents(file).stream()
            .filter(event -> event.getEventType().getName().equals("io.nccl4j.Collective"))
            .filter(event -> event.getInt("rank") == 0)
            .max(Comparator.comparingLong(event -> event.getLong("sequence")))
            .orElseThrow();
    assertTrue(second.getDuration("queued").toNanos() >= behind, second::toString);
  }
}
