package io.nccl4j.tools.evidence;

import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.tools.cli.JsonTree;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.io.TempDir;

/** Fuzzes the reading of reports and of earlier runs; scripts/lib/fuzz runs more. */
@Tag("slow")
class JsonFuzzTest {
  private static final Machine MACHINE =
      new Machine(
          true,
          Libraries.STAND_IN,
          "stand-in",
          8,
          "2.30.7",
          "/lib/libnccl.so.2",
          "/lib/libcudart.so");
  private static final Report REPORT =
      new Report(
          Report.Verdict.PASSED,
          "a summary",
          Map.of("a fact", "its value"),
          List.of(new Table("GB/s", List.of("size", "busbw"), List.of(List.of(8L, 0.25)))),
          List.of("a note"));

  @TempDir Path folder;

  @TestFactory
  Stream<DynamicTest> parserEndsAsDocumented() {
    return Stream.of("evidence-json")
        .filter(Fuzzer::selected)
        .map(name -> DynamicTest.dynamicTest(name, () -> Fuzzer.run(name, Pages::new)));
  }

  private final class Pages implements FuzzTarget {
    @Override
    public List<Sample> samples() throws IOException {
      Step.Command command =
          new Step.Command("rank 0", List.of("java"), Map.of("A", "B"), Path.of("report"));
      Step step = Step.of("latency", "The title", Duration.ofSeconds(9), command);
      Outcome outcome = new Outcome(step, Outcome.Status.PASSED, REPORT, 1.26, Map.of());
      Run.RunSource source = new Run.RunSource("2026-11-20 12:00:00 UTC", "1.0", "Java 25");
      Run run = new Run(source, false, MACHINE, List.of(new Run.Recorded(outcome, source)));
      Path report = folder.resolve("report.json");
      REPORT.write(report);
      return List.of(
          Sample.text(JsonTree.text(run.tree())),
          // Caused a NullPointerException in the past.
          Sample.text(JsonTree.text(run.tree()).replace("\"name\"", "\"no name\"")),
          Sample.text(Files.readString(report)),
          Sample.text("{\"format\": 3, \"steps\": " + "[".repeat(50_000)));
    }

    @Override
    public void read(byte[] input) throws IOException {
      Path file = Files.write(folder.resolve("input.json"), input);
      IOException first = null;
      try {
        Report.read(file);
      } catch (IOException e) {
        first = e;
      }
      Run.Earlier.read(file);
      if (first != null) {
        throw first;
      }
    }

    @Override
    public List<Class<? extends Exception>> documented() {
      return List.of(IOException.class);
    }

    @Override
    public long maxAllocated(int inputBytes) {
      return (1 << 20) + 256L * inputBytes;
    }
  }
}
