package io.nccl4j.tools.doctor;

import io.nccl4j.tools.flight.Flight;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;

/** Explains a hang from the dumps of nccl4j's flight recorder. */
final class OperationsCheck {
  private OperationsCheck() {}

  static List<Finding> findings(Path dumps) {
    try {
      return Flight.differences(dumps).entrySet().stream()
          .map(entry -> finding(entry.getKey(), entry.getValue(), dumps))
          .toList();
    } catch (IOException e) {
      return List.of(
          Finding.unchecked(
              "the operations of the ranks: " + e.getMessage(),
              "what a job waits for is not known",
              "set NCCL4J_FLIGHT_DIR for all ranks to a folder that they share, and run the job"
                  + " again"));
    }
  }

  private static Finding finding(String communicator, List<String> differences, Path dumps) {
    return Finding.warning(
            communicator + ": " + differences.getFirst(),
            "ranks that wait for others do so until their time-outs",
            "look at what that process does instead (jstack); all calls: nccl4j flight " + dumps)
        .with(differences.subList(1, differences.size()));
  }
}
