package io.nccl4j.tools.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.fixtures.fuzzing.FuzzTarget;
import io.nccl4j.fixtures.fuzzing.Fuzzer;
import io.nccl4j.fixtures.fuzzing.Sample;
import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.perf.report.PerfRun;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.io.TempDir;

/** Fuzzes the reader of JSON results; scripts/lib/fuzz runs it for longer. */
@Tag("slow")
class ResultFuzzTest {
  @TempDir Path folder;

  @TestFactory
  Stream<DynamicTest> parserEndsAsDocumented() {
    return Stream.of("perf-json")
        .filter(Fuzzer::selected)
        .map(name -> DynamicTest.dynamicTest(name, () -> Fuzzer.run(name, Results::new)));
  }

  private final class Results implements FuzzTarget {
    @Override
    public List<Sample> samples() throws IOException {
      Path file = folder.resolve("result.json");
      Command command =
          Command.reference(
              "all_reduce --ranks 2 -b 1K -e 2K -f 2 -n 1 -w 0 -J " + file.toString());
      assertEquals(Commands.OK, command.status(), command.err());
      return List.of(
          Sample.text(Files.readString(file)),
          // Too deep for the stack of a recursive reader.
          Sample.text("{\"config\": {}, \"results\": " + "[".repeat(50_000)));
    }

    @Override
    public void read(byte[] input) throws IOException {
      PerfRun.read(Files.write(folder.resolve("input.json"), input));
    }

    @Override
    public List<Class<? extends Exception>> documented() {
      return List.of(IOException.class, IllegalArgumentException.class);
    }

    @Override
    public long maxAllocated(int inputBytes) {
      return (1 << 20) + 256L * inputBytes;
    }
  }
}
