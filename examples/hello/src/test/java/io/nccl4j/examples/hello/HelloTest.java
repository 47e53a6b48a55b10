package io.nccl4j.examples.hello;

import static java.util.stream.Collectors.joining;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import io.nccl4j.fixtures.Checkout;
import io.nccl4j.fixtures.libraries.Driver;
import io.nccl4j.fixtures.programs.FinishedProgram;
import io.nccl4j.fixtures.programs.StandIn;
import java.io.File;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** Runs the program like its users: in a process, on the module path, with one flag. */
class HelloTest {
  private static final List<String> HELLO =
      List.of(
          Path.of(System.getProperty("java.home"), "bin", "java").toString(),
          "--enable-native-access=io.nccl4j",
          "--module-path",
          System.getProperty("jdk.module.path"),
          "--module",
          "io.nccl4j.examples.hello/io.nccl4j.examples.hello.Hello");

  private static FinishedProgram hello(Map<String, String> environment)
      throws IOException, InterruptedException {
    return FinishedProgram.run(environment, HELLO);
  }

  private static void assertEveryRankHasTheSum(String backend, int ranks, FinishedProgram ended) {
    assertEquals(0, ended.status(), ended.err());
    assertEquals(
        IntStream.range(0, ranks)
            .mapToObj(
                rank ->
                    ("%s: rank %d of %d has the sum of 1000 elements, OK; started by no launcher,"
                            + " id from this process alone")
                        .formatted(backend, rank, ranks))
            .toList(),
        ended.out().lines().sorted().toList());
  }

  private static void assertEnded(int status, String message, FinishedProgram ended) {
    assertEquals(status, ended.status(), ended.output());
    assertTrue(ended.err().startsWith(message), ended.err());
  }

  @Test
  void everyRankHasTheSumOnTheAvailableBackend() throws IOException, InterruptedException {
    FinishedProgram ended = FinishedProgram.run(new ProcessBuilder(HELLO));
    String backend = ended.out().startsWith("nccl") ? "nccl" : "reference";
    int ranks = (int) ended.out().lines().count();
    assertEveryRankHasTheSum(backend, ranks, ended);
    assertTrue(ranks >= (backend.equals("nccl") ? 1 : 2), ended.out());
  }

  @Test
  void helloNamedLibraryMissingFails() throws IOException, InterruptedException {
    FinishedProgram ended = hello(Map.of("NCCL4J_NCCL_LIBRARY", "/missing/libnccl.so"));
    assertEnded(1, "hello: the native library 'nccl' could not be loaded.", ended);
    assertTrue(ended.err().contains("/missing/libnccl.so"), ended.err());
  }

  @Test
  void helloOnTheReferencePrintsWhy() throws IOException, InterruptedException {
    Map<String, String> environment = StandIn.build();
    environment.put("NCCL4J_STANDIN_DEVICES", "0");
    FinishedProgram ended = hello(environment);
    assertEveryRankHasTheSum("reference", (int) ended.out().lines().count(), ended);
    assertEnded(0, "hello: no NCCL: cudaGetDeviceCount: ", ended);
    assertEquals(1, ended.err().lines().count(), ended.err());
  }

  @Test
  void withoutTheReferenceItsDependencyIsNamed() throws IOException, InterruptedException {
    assumeFalse(Driver.present(), "there is a driver");
    FinishedProgram ended = FinishedProgram.run(Map.of(), withoutReference());
    assertEquals(1, ended.status(), ended.output());
    assertTrue(ended.err().contains("<artifactId>nccl4j-reference</artifactId>"), ended.err());
  }

  @Test
  void referenceOnAnotherPathIsRefused() throws IOException, InterruptedException {
    assumeFalse(Driver.present(), "there is a driver");
    String reference =
        modules().filter(HelloTest::isReference).findFirst().orElseThrow(AssertionError::new);
    List<String> command = withoutReference();
    command.addAll(1, List.of("-cp", reference));
    FinishedProgram ended = FinishedProgram.run(Map.of(), command);
    assertEquals(1, ended.status(), ended.output());
    assertTrue(ended.err().contains("put both on the same path"), ended.err());
  }

  /** Returns the command with a module path that lacks the reference. */
  private static List<String> withoutReference() {
    List<String> command = new ArrayList<>(HELLO);
    command.set(
        command.indexOf("--module-path") + 1,
        modules().filter(each -> !isReference(each)).collect(joining(File.pathSeparator)));
    return command;
  }

  private static Stream<String> modules() {
    return Stream.of(System.getProperty("jdk.module.path").split(File.pathSeparator, -1));
  }

  private static boolean isReference(String module) {
    return Path.of(module).startsWith(Checkout.ROOT.resolve("reference"));
  }

  @Test
  void contradictingLauncherVariablesAreReportedInOneLine()
      throws IOException, InterruptedException {
    FinishedProgram ended =
        hello(Map.of("RANK", "0", "WORLD_SIZE", "2", "PMI_RANK", "1", "PMI_SIZE", "2"));
    assertEnded(1, "hello: RANK is 0 and WORLD_SIZE is 2, but PMI_RANK is 1", ended);
    assertEquals(1, ended.err().lines().count(), ended.err());
  }

  @Test
  void everyRankHasTheSumOnTheStandInForNccl() throws IOException, InterruptedException {
    assertEveryRankHasTheSum("nccl", 8, hello(StandIn.build()));
  }

  @Test
  void failureOfARankIsReportedInOneLine() throws IOException, InterruptedException {
    Map<String, String> environment = StandIn.build();
    environment.put("NCCL4J_STANDIN_DEVICES", "1");
    environment.put("NCCL4J_STANDIN_FAIL", "ncclCommInitRankConfig=2");
    FinishedProgram ended = hello(environment);
    assertEnded(1, "hello: ncclCommInitRankConfig", ended);
    assertEquals(1, ended.err().lines().count(), ended.err());
  }
}
