package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.fixtures.libraries.Driver;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.Requirement;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Where the libraries are looked for, in which order, and what is said when they are not found;
 * each search in a Java process of its own. The stand-in's libraries lie where NVIDIA's would.
 */
@OnStandIn
class LibrarySearchTest {
  @TempDir private Path temp;

  private final List<String> options = new ArrayList<>();
  private final Map<String, String> environment = new TreeMap<>();
  private Path nccl;
  private Path cudart;

  @BeforeEach
  void aMachineWithNothingOnIt() throws IOException {
    nccl = Requirement.library("nccl").toRealPath();
    cudart = Requirement.library("cudart").toRealPath();
    environment.put("PATH", Files.createDirectory(temp.resolve("bin")).toString());
    environment.put("CUDA_HOME", temp.resolve("no-cuda").toString());
    options.add("--enable-native-access=ALL-UNNAMED");
  }

  @Test
  void aSystemPropertyNamesTheFile() throws Exception {
    options.add("-Dio.nccl4j.nccl.library=" + nccl);
    options.add("-Dio.nccl4j.cudart.library=" + cudart);
    assertEquals(loaded(nccl, cudart), run());
  }

  @Test
  void anEnvironmentVariableNamesTheFile() throws Exception {
    environment.put("NCCL4J_NCCL_LIBRARY", nccl.toString());
    environment.put("NCCL4J_CUDART_LIBRARY", cudart.toString());
    assertEquals(loaded(nccl, cudart), run());
  }

  @Test
  void aNameMayBeThatOfAFolder() throws Exception {
    options.add("-Dio.nccl4j.nccl.library=" + nccl.getParent());
    environment.put("NCCL4J_CUDART_LIBRARY", cudart.getParent().toString());
    assertEquals(loaded(nccl, cudart), run());
  }

  @Test
  void theSystemPropertyComesBeforeTheVariable() throws Exception {
    options.add("-Dio.nccl4j.nccl.library=" + nccl);
    environment.put("NCCL4J_NCCL_LIBRARY", "/no/such/file.so");
    environment.put("NCCL4J_CUDART_LIBRARY", cudart.toString());
    assertEquals(loaded(nccl, cudart), run());
  }

  @Test
  void aFileThatWasNamedAndIsNotThereIsNotReplacedByAnother() throws Exception {
    environment.put("LD_LIBRARY_PATH", nccl.getParent().toString());
    environment.put("NCCL4J_CUDART_LIBRARY", "/no/such/libcudart.so");
    String said = run();
    assertTrue(said.startsWith("no cudart\n"), said);
    assertTrue(
        containsAll(
            said,
            "The environment variable NCCL4J_CUDART_LIBRARY names no library that can be loaded:"
                + " correct it, or unset it to have the usual places searched. Tried:\n"
                + "  environment variable NCCL4J_CUDART_LIBRARY: /no/such/libcudart.so: cannot open"),
        said);
    assertFalse(said.contains("Install"), said);
    assertEquals(1, said.lines().filter(line -> line.startsWith("  ")).count(), said);
  }

  @Test
  void aLibncclThatWasNamedAndIsNotThereIsToldAlsoWhereThereIsNoDevice() throws Exception {
    environment.put("NCCL4J_NCCL_LIBRARY", "/no/such/libnccl.so");
    environment.put("NCCL4J_STANDIN_DEVICES", "0");
    options.add("-Dio.nccl4j.cudart.library=" + cudart);
    String said = run();
    assertTrue(said.startsWith("no nccl\n"), said);
    assertTrue(said.contains("environment variable NCCL4J_NCCL_LIBRARY"), said);
    assertTrue(said.contains("/no/such/libnccl.so: cannot open shared object file"), said);
  }

  private static boolean containsAll(String text, String... parts) {
    return Stream.of(parts).allMatch(text::contains);
  }

  @ParameterizedTest
  @ValueSource(strings = {"nccl", "cudart"})
  void autoNamedLibraryMissingThrows(String label) throws Exception {
    environment.put("NCCL4J_NCCL_LIBRARY", nccl.toString());
    environment.put("NCCL4J_CUDART_LIBRARY", cudart.toString());
    options.add("-Dio.nccl4j." + label + ".library=/no/such/lib.so");
    String said = run("auto");
    assertTrue(said.startsWith("no " + label + "\n"), said);
    assertTrue(
        containsAll(said, "system property io.nccl4j." + label + ".library", "/no/such/lib.so"),
        said);
  }

  @Test
  void autoNamedLibraryMissingAndNoDeviceThrows() throws Exception {
    environment.put("NCCL4J_NCCL_LIBRARY", "/no/such/libnccl.so");
    environment.put("NCCL4J_CUDART_LIBRARY", cudart.toString());
    environment.put("NCCL4J_STANDIN_DEVICES", "0");
    assertTrue(run("auto").startsWith("no nccl\n"));
  }

  @Test
  void autoNoDeviceReturnsReferenceWithReason() throws Exception {
    environment.put("NCCL4J_NCCL_LIBRARY", nccl.toString());
    environment.put("NCCL4J_CUDART_LIBRARY", cudart.toString());
    environment.put("NCCL4J_STANDIN_DEVICES", "0");
    String said = run("auto");
    assertTrue(said.startsWith("reference because "), said);
    assertTrue(
        containsAll(said, "no NVIDIA driver is installed", "cudaErrorInsufficientDriver"), said);
  }

  @Test
  void autoNoDriverAndNothingNamedReturnsReferenceWithReason() throws Exception {
    assumeFalse(Driver.present(), "there is a driver");
    assertEquals(
        "reference because no NVIDIA driver is installed: neither /dev/nvidiactl nor"
            + " /proc/driver/nvidia/version nor /dev/dxg exists\n",
        run("auto"));
  }

  @Test
  void ncclLibraryAndDeviceMissingNamesBoth() throws Exception {
    environment.put("NCCL4J_NCCL_LIBRARY", "/no/such/libnccl.so");
    environment.put("NCCL4J_CUDART_LIBRARY", cudart.toString());
    environment.put("NCCL4J_STANDIN_DEVICES", "0");
    String said = run();
    assertTrue(said.startsWith("no nccl\n"), said);
    assertTrue(containsAll(said, "/no/such/libnccl.so", "cudaErrorInsufficientDriver"), said);
  }

  @Test
  void ncclBothLibrariesAndDriverMissingNamesAll() throws Exception {
    assumeFalse(Driver.present(), "there is a driver");
    environment.put("NCCL4J_NCCL_LIBRARY", "/no/such/libnccl.so");
    environment.put("NCCL4J_CUDART_LIBRARY", "/no/such/libcudart.so");
    String said = run();
    assertTrue(said.startsWith("no cudart\n"), said);
    assertTrue(
        containsAll(
            said,
            "/no/such/libcudart.so",
            "the native library 'nccl' could not be loaded",
            "/no/such/libnccl.so",
            "no NVIDIA driver is installed"),
        said);
  }

  @Test
  void theStandardNamesAreAskedOfTheSystemsLoader() throws Exception {
    environment.put("LD_LIBRARY_PATH", nccl.getParent().toString());
    assertEquals(loaded(nccl, cudart), run());
  }

  @Test
  void runtimeNewerThanTheDriverIsPassedOverForAnOlderOne() throws Exception {
    Path folder = Files.createDirectory(temp.resolve("lib"));
    Files.copy(cudart, folder.resolve("libcudart.so.13"));
    Path older = Files.copy(cudart, folder.resolve("libcudart.so.12"));
    environment.put("LD_LIBRARY_PATH", folder + ":" + nccl.getParent());
    environment.put("NCCL4J_STANDIN_DRIVER", "12080");
    assertEquals("cudart from " + older + "\n", run("cudart"));
  }

  @Test
  void runtimeNewerThanTheDriverIsExplainedIfThereIsNoOther() throws Exception {
    environment.put("LD_LIBRARY_PATH", nccl.getParent().toString());
    environment.put("NCCL4J_STANDIN_DRIVER", "12080");
    String said = run();
    assumeTrue(!said.contains("cudart from"), "the system's loader knows another libcudart");
    assertTrue(said.startsWith("no cudart\n"), said);
    assertTrue(said.contains("libcudart.so.13: is of CUDA 13.0; the driver runs CUDA 12.8"), said);
  }

  @Test
  void runtimeThatWasNamedIsNotReplacedWhereTheDriverIsOlder() throws Exception {
    options.add("-Dio.nccl4j.nccl.library=" + nccl);
    options.add("-Dio.nccl4j.cudart.library=" + cudart);
    environment.put("NCCL4J_STANDIN_DRIVER", "12080");
    String said = run();
    assertTrue(said.startsWith("no device\ncudaGetDeviceCount: "), said);
    assertTrue(said.contains("cudaErrorInsufficientDriver"), said);
  }

  @Test
  void theWheelsOfTheActivePythonAreFound() throws Exception {
    Path packages = temp.resolve("site-packages");
    Path copy = copyNccl(packages.resolve("nvidia/nccl/lib"));
    Path python = temp.resolve("bin/python3");
    Files.writeString(python, "#!/bin/sh\necho " + packages + "\n");
    assertTrue(python.toFile().setExecutable(true));
    assertEquals(loaded(copy, cudart), run());
  }

  @Test
  void whatElsePythonPrintsAndWhatTheLocaleCannotNameDoesNotStopTheSearch() throws Exception {
    Path packages = temp.resolve("site-packages");
    Path copy = copyNccl(packages.resolve("nvidia/nccl/lib"));
    Path python = temp.resolve("bin/python3");
    String folders = "echo a warning; printf '/home/j\\303\\266rg\\n'; echo " + packages;
    Files.writeString(python, "#!/bin/sh\n" + folders + "\n");
    assertTrue(python.toFile().setExecutable(true));
    environment.put("LC_ALL", "C");
    assertEquals(loaded(copy, cudart), run());
    Files.delete(copy);
    String said = run();
    assertTrue(said.contains("wheels of the active python3: cannot be named in this locale"), said);
    assertFalse(said.contains("a warning"), said);
  }

  @Test
  void theCondaPrefixIsFound() throws Exception {
    Path copy = copyNccl(temp.resolve("conda/lib"));
    environment.put("CONDA_PREFIX", temp.resolve("conda").toString());
    assertEquals(loaded(copy, cudart), run());
  }

  @Test
  void theCudaHomeIsFound() throws Exception {
    Path copy = copyNccl(temp.resolve("cuda/lib64"));
    environment.put("CUDA_HOME", temp.resolve("cuda").toString());
    assertEquals(loaded(copy, cudart), run());
  }

  /**
   * Puts a copy of libnccl, so that where it comes from can be told, into a folder of its own.
   * cudart is named, because the system may have one; it is looked for in the same way.
   */
  private Path copyNccl(Path folder) throws Exception {
    options.add("-Dio.nccl4j.cudart.library=" + cudart);
    assumeTrue(run().startsWith("no nccl\n"), "the system's loader knows a libnccl");
    return Files.copy(nccl, Files.createDirectories(folder).resolve("libnccl.so.2"));
  }

  @Test
  void whatIsNotFoundListsEveryAttemptAndTheRemedy() throws Exception {
    options.add("-Dio.nccl4j.cudart.library=" + cudart);
    String said = run();
    assumeTrue(said.startsWith("no nccl\n"), "the system's loader knows a libnccl");
    for (String part :
        List.of(
            "-Dio.nccl4j.nccl.library=PATH",
            "NCCL4J_NCCL_LIBRARY=PATH",
            "system loader: libnccl.so.2: cannot open shared object file",
            "system loader: libnccl.so: ",
            "pip wheels of the active python3: ",
            "environment variable CONDA_PREFIX: not set",
            "environment variable CUDA_HOME: " + temp.resolve("no-cuda/lib64"))) {
      assertTrue(said.contains(part), () -> "lacks '" + part + "':\n" + said);
    }
  }

  @Test
  void aFileThatIsNoLibraryIsRefusedInTheLoadersOwnWords() throws Exception {
    Path text = Files.writeString(temp.resolve("libnccl.so.2"), "not a library");
    options.add("-Dio.nccl4j.nccl.library=" + text);
    options.add("-Dio.nccl4j.cudart.library=" + cudart);
    String said = run();
    assertTrue(said.startsWith("no nccl\n"), said);
    assertTrue(said.contains("file too short") || said.contains("invalid ELF header"), said);
  }

  @Test
  void withoutNativeAccessTheFlagToSetIsNamed() throws Exception {
    options.remove("--enable-native-access=ALL-UNNAMED");
    options.add("--illegal-native-access=deny");
    options.add("-Dio.nccl4j.nccl.library=" + nccl);
    options.add("-Dio.nccl4j.cudart.library=" + cudart);
    assertEquals(
        "nccl4j may not call native code; start Java with --enable-native-access=ALL-UNNAMED\n",
        run());
  }

  private static String loaded(Path nccl, Path cudart) {
    return "nccl from " + nccl + "\ncudart from " + cudart + "\n";
  }

  /** Runs {@link LibraryUser} and returns what it prints. */
  private String run(String... arguments) throws Exception {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(options);
    command.add("-cp");
    command.add(
        System.getProperty("java.class.path") + ":" + System.getProperty("jdk.module.path", ""));
    command.add(LibraryUser.class.getName());
    command.addAll(List.of(arguments));
    ProcessBuilder builder =
        new ProcessBuilder(command).redirectError(temp.resolve("errors").toFile());
    builder.environment().clear();
    builder.environment().putAll(environment);
    Process process = builder.start();
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, process.waitFor(), () -> output + "\n" + readErrors());
    return output;
  }

  private String readErrors() {
    try {
      return Files.readString(temp.resolve("errors"));
    } catch (IOException e) {
      return e.toString();
    }
  }
}
