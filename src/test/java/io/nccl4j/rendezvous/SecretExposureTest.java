package io.nccl4j.rendezvous;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.fixtures.programs.FinishedProgram;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.Map;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A secret is in no output, whichever way it is set. */
@Tag("slow")
class SecretExposureTest {
  private static final String TEXT = "e8a1f0c2-correct-horse-battery-staple";

  @TempDir Path folder;

  @ParameterizedTest
  @ValueSource(strings = {"NCCL4J_SECRET", "NCCL4J_SECRET_FILE"})
  void secretIsInNoTextLogOrRecording(String variable) throws Exception {
    Path file = folder.resolve("secret");
    Files.writeString(file, TEXT);
    Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-------"));
    Path recording = folder.resolve("rank.jfr");
    FinishedProgram ended =
        FinishedProgram.run(
            Map.of(variable, variable.endsWith("FILE") ? file.toString() : TEXT),
            FinishedProgram.java(
                "-Dlog4j2.level=TRACE",
                "-XX:StartFlightRecording:filename="
                    + recording
                    + ",jdk.InitialEnvironmentVariable#enabled=false",
                SecretOutput.class.getName()));
    assertEquals(0, ended.status(), ended.output());
    // The ranks met, and what they print and log is really there.
    assertTrue(ended.out().contains("rank 1 has UniqueId["), ended.output());
    assertTrue(ended.out().contains("does not know the secret"), ended.output());
    assertTrue(ended.out().contains("DEBUG") || ended.err().contains("DEBUG"), ended.output());
    assertFalse(ended.output().contains(TEXT), ended.output());
    List<RecordedEvent> events = RecordingFile.readAllEvents(recording);
    assertTrue(
        events.stream()
            .anyMatch(each -> each.getEventType().getName().equals("jdk.JVMInformation")),
        () -> events.size() + " events");
    for (RecordedEvent event : events) {
      assertFalse(event.toString().contains(TEXT), event::toString);
    }
  }
}
