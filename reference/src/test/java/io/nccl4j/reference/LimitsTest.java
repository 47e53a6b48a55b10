package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.Event;
import io.nccl4j.Stream;
import java.time.Duration;
import org.junit.jupiter.api.Test;

/** Tests arguments at or beyond the limits of a call. */
class LimitsTest {
  private static final Duration LONGEST = Duration.ofSeconds(Long.MAX_VALUE);

  /** These are limited to 146 years instead, which no caller can observe. */
  @Test
  void longestDurationIsAccepted() {
    try (Backend backend = Backend.reference(1)) {
      backend.runRanks(
          1,
          comm -> {
            try (Stream stream = comm.newStream();
                Event event = comm.newEvent()) {
              stream.synchronize(LONGEST);
              stream.record(event);
              event.synchronize(LONGEST);
            }
          });
    }
  }
}
