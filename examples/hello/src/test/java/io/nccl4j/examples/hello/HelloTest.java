package io.nccl4j.examples.hello;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Runs the program as its users do: a process, the module path, and one flag. */
class HelloTest {
  private static final Path ROOT = Path.of("").toAbsolutePath().getParent().getParent();

  @TempDir Path folder;

  private String run(Map<String, String> environment, List<String> command)
      throws IOException, InterruptedException {
    Path out = folder.resolve("out");
    ProcessBuilder builder =
        new ProcessBuilder(command)
            .redirectOutput(out.toFile())
            .redirectError(folder.resolve("err").toFile());
    builder.environment().putAll(environment);
    Process process = builder.start();
    assertTrue(process.waitFor(120, TimeUnit.SECONDS), "still running: " + command);
    assertEquals(0, process.exitValue(), () -> errors());
    return Files.readString(out);
  }

  private String errors() {
    try {
      return Files.readString(folder.resolve("err"));
    } catch (IOException e) {
      return e.toString();
    }
  }

  private static final List<String> HELLO =
      List.of(
          Path.of(System.getProperty("java.home"), "bin", "java").toString(),
          "--enable-native-access=io.nccl4j",
          "--module-path",
          System.getProperty("jdk.module.path"),
          "--module",
          "io.nccl4j.examples.hello/io.nccl4j.examples.hello.Hello");

  private List<String> hello(Map<String, String> environment)
      throws IOException, InterruptedException {
    return run(environment, HELLO).lines().toList();
  }

  private static List<String> lines(String backend, int ranks) {
    return IntStream.range(0, ranks)
        .mapToObj(
            rank ->
                "%s: rank %d of %d has the sum of 1000 elements, all right"
                    .formatted(backend, rank, ranks))
        .toList();
  }

  @Test
  void everyRankHasTheSumOnTheBackendThatIsThere() throws IOException, InterruptedException {
    List<String> out = hello(Map.of());
    String backend = out.getFirst().startsWith("nccl") ? "nccl" : "reference";
    assertEquals(lines(backend, out.size()), out);
    assertTrue(out.size() >= (backend.equals("nccl") ? 1 : 2), out.toString());
  }

  @Test
  void resultsThatCannotBeWrittenAreAFailure() throws IOException, InterruptedException {
    Path full = Path.of("/dev/full");
    assumeTrue(Files.exists(full), "no /dev/full");
    Process process =
        new ProcessBuilder(HELLO)
            .redirectOutput(full.toFile())
            .redirectError(folder.resolve("err").toFile())
            .start();
    assertTrue(process.waitFor(120, TimeUnit.SECONDS), "still running");
    assertEquals(1, process.exitValue());
    assertTrue(errors().endsWith("hello: the results cannot be written to stdout\n"), errors());
  }

  @Test
  void helloNamedLibraryMissingFails() throws IOException, InterruptedException {
    assertEquals(1, status(Map.of("NCCL4J_NCCL_LIBRARY", "/missing/libnccl.so")), this::errors);
    assertTrue(
        errors().startsWith("hello: the native library 'nccl' could not be loaded."), errors());
    assertTrue(errors().contains("/missing/libnccl.so"), errors());
  }

  @Test
  void helloOnTheReferencePrintsWhy() throws IOException, InterruptedException {
    Map<String, String> environment = new HashMap<>(standIn());
    environment.put("NCCL4J_STANDIN_DEVICES", "0");
    List<String> out = hello(environment);
    assertEquals(lines("reference", out.size()), out);
    assertTrue(errors().startsWith("hello: NCCL is not used: cudaGetDeviceCount: "), errors());
    assertEquals(1, errors().lines().count(), errors());
  }

  private int status(Map<String, String> environment) throws IOException, InterruptedException {
    ProcessBuilder builder =
        new ProcessBuilder(HELLO).redirectError(folder.resolve("err").toFile());
    builder.environment().putAll(environment);
    Process process = builder.start();
    assertTrue(process.waitFor(120, TimeUnit.SECONDS), "still running");
    return process.exitValue();
  }

  @Test
  void contradictingVariablesOfLaunchersAreToldInOneLine()
      throws IOException, InterruptedException {
    Map<String, String> two =
        Map.of("RANK", "0", "WORLD_SIZE", "2", "PMI_RANK", "1", "PMI_SIZE", "2");
    assertEquals(2, status(two), this::errors);
    assertTrue(
        errors().startsWith("hello: RANK is 0 and WORLD_SIZE is 2, but PMI_RANK is 1"), errors());
    assertEquals(1, errors().lines().count(), errors());
  }

  /** Builds the stand-in, or skips the test where that cannot be; returns what names it. */
  private Map<String, String> standIn() throws IOException, InterruptedException {
    String required = System.getenv().getOrDefault("REQUIRE_NCCL", "0");
    try {
      run(Map.of(), List.of(ROOT.resolve("src/test/native/build").toString()));
    } catch (AssertionError e) {
      assumeTrue(required.equals("1"), () -> "the stand-in does not build: " + e.getMessage());
      throw e;
    }
    return Map.of(
        "NCCL4J_NCCL_LIBRARY", ROOT.resolve("target/standin/libnccl.so.2").toString(),
        "NCCL4J_CUDART_LIBRARY", ROOT.resolve("target/standin/libcudart.so.13").toString());
  }

  @Test
  void everyRankHasTheSumOnTheStandInForNcclToo() throws IOException, InterruptedException {
    assertEquals(lines("nccl", 8), hello(standIn()));
  }

  @Test
  void whatARankThrowsIsToldInOneLine() throws IOException, InterruptedException {
    Map<String, String> environment = new HashMap<>(standIn());
    environment.put("NCCL4J_STANDIN_DEVICES", "1");
    environment.put("NCCL4J_STANDIN_FAIL", "ncclCommInitRankConfig=2");
    assertEquals(1, status(environment), this::errors);
    assertTrue(errors().startsWith("hello: ncclCommInitRankConfig"), errors());
    assertEquals(1, errors().lines().count(), errors());
  }
}
