package io.nccl4j.tools.evidence;

import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import io.nccl4j.fixtures.fuzzing.Sample;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.io.TempDir;

/** Fuzzes the reading of reports; scripts/lib/fuzz runs more. */
@Tag("slow")
class JsonFuzzTest {
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
        .map(name -> DynamicTest.dynamicTest(name, () -> Fuzzer.run(name, Reports::new)));
  }

  private final class Reports implements FuzzTarget {
    @Override
    public List<Sample> samples() throws IOException {
      Path report = folder.resolve("report.json");
      REPORT.write(report);
      return List.of(
          Sample.text(Files.readString(report)),
          Sample.text("{\"verdict\": \"PASSED\", \"tables\": " + "[".repeat(50_000)));
    }

    @Override
    public void read(byte[] input) throws IOException {
      Path file = Files.write(folder.resolve("input.json"), input);
      Report.read(file);
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
