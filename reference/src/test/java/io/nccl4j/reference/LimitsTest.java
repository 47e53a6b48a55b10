package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.Stream;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Tests arguments at or beyond the limits of a call. */
class LimitsTest {
  private static final Duration LONGEST = Duration.ofSeconds(Long.MAX_VALUE);

  @Test
  void arrayOfAnotherTypeIsRefused() {
    try (Backend backend = Backend.reference(1);
        Stream stream = backend.newStream(0);
        Buffer buffer = backend.newBuffer(0, DataType.UINT64, 1)) {
      Executable[] copies = {
        () -> buffer.copyFromAsync(new float[2], stream),
        () -> buffer.copyFromAsync(new double[1], stream),
        () -> buffer.copyFromAsync(new int[2], stream),
        () -> buffer.copyTo(new float[2], stream),
        () -> buffer.copyTo(new double[1], stream),
        () -> buffer.copyTo(new int[2], stream)
      };
      String[] elements = {"float", "double", "int", "float", "double", "int"};
      for (int i = 0; i < copies.length; i++) {
        String argument = i < 3 ? "source" : "target";
        assertEquals(
            argument + " is an array of " + elements[i] + "; " + buffer + " has type UINT64",
            assertThrows(IllegalArgumentException.class, copies[i]).getMessage());
      }
    }
  }

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
