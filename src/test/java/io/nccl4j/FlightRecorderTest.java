package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.internal.flight.OperationLog;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.UUID;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Settings and files of the flight recorder. */
class FlightRecorderTest {
  @TempDir Path folder;

  private final String communicator = UUID.randomUUID().toString();

  private static OperationLog open(String communicator, int rank) {
    return FlightRecorder.open(communicator, "train", rank, 2, "reference", rank);
  }

  @ParameterizedTest
  @CsvSource({"records, -1", "records, 100001", "records, many", "frames, true", "frames, 2"})
  void invalidSettingIsRefused(String name, String value) {
    String property = "io.nccl4j.flight." + name;
    System.setProperty(property, value);
    try {
      IllegalArgumentException refused =
          assertThrows(IllegalArgumentException.class, FlightRecorder::checkSettings);
      assertTrue(refused.getMessage().startsWith(property + " is "), refused.getMessage());
    } finally {
      System.clearProperty(property);
    }
  }

  @Test
  void communicatorAfterManyShrinksIsDumped() throws IOException {
    OperationLog log = open(communicator + "/shrink1-7".repeat(50), 0);
    OperationLog other = open(communicator + "/shrink1-7".repeat(51), 0);
    try {
      FlightRecorder.dump(folder);
      assertEquals(4, files());
    } finally {
      FlightRecorder.closed(log);
      FlightRecorder.closed(other);
    }
  }

  private long files() throws IOException {
    try (var files = Files.list(folder)) {
      return files.filter(each -> each.toString().contains(communicator)).count();
    }
  }

  @Test
  void rankThatCannotBeDumpedDoesNotPreventOthers() throws IOException {
    OperationLog zero = open(communicator, 0);
    OperationLog one = open(communicator, 1);
    try {
      for (int rank = 0; rank < 2; rank++) {
        Path dumps = folder.resolve("dumps-" + rank);
        String taken = communicator + "_rank_" + rank + ".json";
        Files.createDirectories(dumps.resolve(taken).resolve("content"));
        assertThrows(IOException.class, () -> FlightRecorder.dump(dumps));
        String other = "nccl4j_" + communicator + "_rank_" + (1 - rank);
        assertTrue(Files.exists(dumps.resolve(other)), other);
      }
    } finally {
      FlightRecorder.closed(zero);
      FlightRecorder.closed(one);
    }
  }
}
