package io.nccl4j.tools.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.tools.cli.Commands;
import io.nccl4j.tools.cli.JsonTree;
import io.nccl4j.tools.perf.report.PerfRun;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The JSON file has the run, versions and host, but not the environment. */
class JsonReportTest {
  @TempDir Path folder;

  private static Object read(Path file) throws IOException {
    return JsonTree.parse(Files.readString(file));
  }

  @SuppressWarnings("unchecked")
  private static Map<String, Object> object(Object value) {
    return (Map<String, Object>) value;
  }

  private static List<?> list(Object value) {
    return (List<?>) value;
  }

  private Command run(Path file, String... more) {
    List<String> args =
        new ArrayList<>(
            List.of(
                "all_reduce", "--backend", "reference", "--ranks", "2", "-b", "1K", "-e", "4K"));
    args.addAll(List.of("-f", "2", "--no-jit-warmup", "-J", file.toString()));
    args.addAll(List.of(more));
    return Command.run(args.toArray(String[]::new));
  }

  @Test
  void jsonMatchesTable() throws IOException {
    Path file = folder.resolve("result.json");
    Command command = run(file, "-I", "1", "-n", "5");
    assertEquals(Commands.OK, command.status(), command.err());
    Map<String, Object> json = object(read(file));
    assertEquals(3L, json.get("version"));
    assertEquals("all_reduce", list(json.get("args")).getFirst());
    assertEquals("reference", object(json.get("config")).get("backend"));
    assertEquals(2, list(object(json.get("config")).get("devices")).size());
    assertTrue(object(json.get("versions")).containsKey("java"));
    assertTrue(object(json.get("versions")).containsKey("nccl4j"));
    assertEquals(
        (long) Runtime.getRuntime().availableProcessors(), object(json.get("host")).get("cpus"));
    assertEquals("true", object(json.get("out_of_bounds")).get("okay"));
    assertEquals(List.of(), json.get("errors"));
    List<?> results = list(json.get("results"));
    assertEquals(3, results.size());
    for (int i = 0; i < 3; i++) {
      Map<String, Object> result = object(results.get(i));
      List<String> row = command.rows().get(i);
      assertEquals(row.get(0), "" + result.get("size"));
      assertEquals(row.get(1), "" + result.get("count"));
      Map<String, Object> outOfPlace = object(result.get("out_of_place"));
      assertEquals(Double.parseDouble(row.get(5)), (Double) outOfPlace.get("time"), 0.51);
      assertEquals(0L, outOfPlace.get("nwrong"));
      assertEquals(5, list(object(result.get("in_place_per_iter")).get("times_us")).size());
    }
  }

  @Test
  void environmentIsNotWritten() throws IOException {
    Path file = folder.resolve("result.json");
    run(file);
    String text = Files.readString(file);
    assertFalse(object(read(file)).containsKey("env"));
    System.getenv().forEach((name, value) -> assertFalse(text.contains(name + "=" + value), name));
    assertFalse(text.contains(System.getenv().getOrDefault("PATH", "?")));
  }

  @Test
  void existingFileIsKept() throws IOException {
    Path file = folder.resolve("result.json");
    Files.writeString(file, "mine");
    Command command = run(file);
    assertEquals("mine", Files.readString(file));
    assertEquals(3, list(object(read(folder.resolve("result.json.0"))).get("results")).size());
    assertTrue(command.out().contains("# Writing JSON output to " + file + ".0"), command.out());
  }

  @Test
  void unwritableFileIsReportedInOneLine() {
    Command command = run(folder.resolve("missing").resolve("result.json"));
    assertEquals(Commands.BAD_ARGUMENTS, command.status());
    assertEquals(1, command.errors().size(), command.err());
    assertTrue(command.err().contains("result.json"), command.err());
  }

  @Test
  void missingInPlaceFormIsNotCharted() throws IOException {
    Path file = folder.resolve("alltoall.json");
    Command.reference("alltoall -b 4K -e 4K --no-jit-warmup -J " + file.toString());
    PerfRun.Row row = PerfRun.read(file).rows().getFirst();
    assertTrue(row.outOfPlace().micros() > 0, row.toString());
    assertNull(row.inPlace());
  }
}
