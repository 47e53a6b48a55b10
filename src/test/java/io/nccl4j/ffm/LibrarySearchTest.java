package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.abort;
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
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Tests where and in which order the libraries are searched, and the messages when they are not
 * found. Each search runs in its own Java process. The stand-in's libraries take the place of
 * NVIDIA's.
 */
@OnStandIn
@Tag("slow")
class LibrarySearchTest {
  @TempDir private Path temp;

  private final List<String> options = new ArrayList<>();
  private final Map<String, String> environment = new TreeMap<>();
  private Path directory;
  private Path nccl;
  private Path cudart;

  @BeforeEach
  void hideInstalledLibraries() throws IOException {
    nccl = Requirement.library("nccl").toRealPath();
    cudart = Requirement.library("cudart").toRealPath();
    environment.put("PATH", Files.createDirectory(temp.resolve("bin")).toString());
    environment.put("CUDA_HOME", temp.resolve("no-cuda").toString());
    options.add("--enable-native-access=ALL-UNNAMED");
  }

  @Test
  void systemPropertyNamesTheFile() throws Exception {
    options.add("-Dio.nccl4j.nccl.library=" + nccl);
    options.add("-Dio.nccl4j.cudart.library=" + cudart);
    assertEquals(loaded(nccl, cudart), run());
  }

  @Test
  void environmentVariableNamesTheFile() throws Exception {
    environment.put("NCCL4J_NCCL_LIBRARY", nccl.toString());
    environment.put("NCCL4J_CUDART_LIBRARY", cudart.toString());
    assertEquals(loaded(nccl, cudart), run());
  }

  @Test
  void directoryMayBeNamed() throws Exception {
    options.add("-Dio.nccl4j.nccl.library=" + nccl.getParent());
    environment.put("NCCL4J_CUDART_LIBRARY", cudart.getParent().toString());
    assertEquals(loaded(nccl, cudart), run());
  }

  @Test
  void systemPropertyPrecedesTheVariable() throws Exception {
    options.add("-Dio.nccl4j.nccl.library=" + nccl);
    environment.put("NCCL4J_NCCL_LIBRARY", "/no/such/file.so");
    environment.put("NCCL4J_CUDART_LIBRARY", cudart.toString());
    assertEquals(loaded(nccl, cudart), run());
  }

  @Test
  void missingNamedLibraryIsNotReplaced() throws Exception {
    environment.put("LD_LIBRARY_PATH", nccl.getParent().toString());
    environment.put("NCCL4J_CUDART_LIBRARY", "/no/such/libcudart.so");
    String output = run();
    assertTrue(output.startsWith("no cudart\n"), output);
    assertTrue(
        containsAll(
            output,
            "The environment variable NCCL4J_CUDART_LIBRARY names no library that can be loaded:"
                + " correct it, or unset it to have the usual places searched. Tried:\n"
                + "  environment variable NCCL4J_CUDART_LIBRARY: /no/such/libcudart.so: cannot open"),
        output);
    assertFalse(output.contains("Install"), output);
    assertEquals(1, output.lines().filter(line -> line.startsWith("  ")).count(), output);
  }

  @Test
  void missingNamedNcclIsReportedWithoutDevice() throws Exception {
    environment.put("NCCL4J_NCCL_LIBRARY", "/no/such/libnccl.so");
    environment.put("NCCL4J_STANDIN_DEVICES", "0");
    options.add("-Dio.nccl4j.cudart.library=" + cudart);
    String output = run();
    assertTrue(output.startsWith("no nccl\n"), output);
    assertTrue(output.contains("environment variable NCCL4J_NCCL_LIBRARY"), output);
    assertTrue(output.contains("/no/such/libnccl.so: cannot open shared object file"), output);
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
    String output = run("auto");
    assertTrue(output.startsWith("no " + label + "\n"), output);
    assertTrue(
        containsAll(output, "system property io.nccl4j." + label + ".library", "/no/such/lib.so"),
        output);
  }

  @Test
  void autoNamedLibraryMissingAndNoDeviceThrows() throws Exception {
    environment.put("NCCL4J_NCCL_LIBRARY", "/no/such/libnccl.so");
    environment.put("NCCL4J_CUDART_LIBRARY", cudart.toString());
    environment.put("NCCL4J_STANDIN_DEVICES", "0");
    assertTrue(run("auto").startsWith("no nccl\n"));
  }

  @Test
  void autoWithoutDeviceOrReferenceGivesTheReason() throws Exception {
    environment.put("NCCL4J_NCCL_LIBRARY", nccl.toString());
    environment.put("NCCL4J_CUDART_LIBRARY", cudart.toString());
    environment.put("NCCL4J_STANDIN_DEVICES", "0");
    String output = run("auto");
    assertTrue(output.startsWith("NCCL cannot be used: "), output);
    assertTrue(
        containsAll(output, "no NVIDIA driver is installed", "cudaErrorInsufficientDriver"),
        output);
  }

  @Test
  void autoWithoutDriverOrReferenceNamesTheDependency() throws Exception {
    assumeFalse(Driver.present(), "there is a driver");
    assertEquals(
        """
        NCCL cannot be used: no NVIDIA driver is installed: neither /dev/nvidiactl nor /proc/driver/nvidia/version \
        nor /dev/dxg exists
        The reference backend is not on the class path or module path. Add this dependency:
          <dependency>
            <groupId>io.github.nccl4j</groupId>
            <artifactId>nccl4j-reference</artifactId>
            <scope>runtime</scope>
          </dependency>
        """,
        run("auto").replaceFirst(" *<version>.+</version>\n", ""));
  }

  @Test
  void ncclLibraryAndDeviceMissingNamesBoth() throws Exception {
    environment.put("NCCL4J_NCCL_LIBRARY", "/no/such/libnccl.so");
    environment.put("NCCL4J_CUDART_LIBRARY", cudart.toString());
    environment.put("NCCL4J_STANDIN_DEVICES", "0");
    String output = run();
    assertTrue(output.startsWith("no nccl\n"), output);
    assertTrue(containsAll(output, "/no/such/libnccl.so", "cudaErrorInsufficientDriver"), output);
  }

  @Test
  void ncclBothLibrariesAndDriverMissingNamesAll() throws Exception {
    assumeFalse(Driver.present(), "there is a driver");
    environment.put("NCCL4J_NCCL_LIBRARY", "/no/such/libnccl.so");
    environment.put("NCCL4J_CUDART_LIBRARY", "/no/such/libcudart.so");
    String output = run();
    assertTrue(output.startsWith("no cudart\n"), output);
    assertTrue(
        containsAll(
            output,
            "/no/such/libcudart.so",
            "the native library 'nccl' could not be loaded",
            "/no/such/libnccl.so",
            "no NVIDIA driver is installed"),
        output);
  }

  @Test
  void lookupPrecedesTheSystemLoader() throws Exception {
    Path answer = Files.copy(nccl, Files.createDirectory(temp.resolve("a")).resolve("n.so"));
    services("Silent", "Answering");
    options.add("-Dtest.answer=" + answer);
    environment.put("LD_LIBRARY_PATH", nccl.getParent().toString());
    assertEquals(loaded(answer, cudart), run());
    assertTrue(
        run("copies")
            .startsWith("Copy[source=service io.nccl4j.ffm.Lookups$Answering, path=" + answer));
  }

  @Test
  void variablePrecedesTheLookup() throws Exception {
    services("Answering");
    options.add("-Dtest.answer=/no/such/file.so");
    environment.put("NCCL4J_NCCL_LIBRARY", nccl.toString());
    environment.put("NCCL4J_CUDART_LIBRARY", cudart.toString());
    assertEquals(loaded(nccl, cudart), run());
  }

  @Test
  void missingFileOfLookupIsNotReplaced() throws Exception {
    services("Answering");
    options.add("-Dtest.answer=/no/such/libnccl.so");
    options.add("-Dio.nccl4j.cudart.library=" + cudart);
    environment.put("LD_LIBRARY_PATH", nccl.getParent().toString());
    String output = run();
    assertTrue(output.startsWith("no nccl\n"), output);
    assertTrue(
        containsAll(
            output,
            "The service io.nccl4j.ffm.Lookups$Answering names no library that can be loaded:"
                + " correct it, or remove it to have the usual places searched. Tried:\n"
                + "  service io.nccl4j.ffm.Lookups$Answering: /no/such/libnccl.so: cannot open"),
        output);
    assertEquals(1, output.lines().filter(line -> line.startsWith("  ")).count(), output);
  }

  @Test
  void failureOfLookupIsReported() throws Exception {
    services("Throwing", "Silent");
    options.add("-Dio.nccl4j.cudart.library=" + cudart);
    String output = run();
    assumeTrue(output.startsWith("no nccl\n"), "the system's loader knows a libnccl");
    assertTrue(
        containsAll(
            output,
            "Tried:\n  service io.nccl4j.ffm.Lookups$Throwing:"
                + " threw java.lang.IllegalStateException: no nccl here\n  system loader: "),
        output);
    environment.put("LD_LIBRARY_PATH", nccl.getParent().toString());
    assertEquals(loaded(nccl, cudart), run());
  }

  @Test
  void missingServiceClassIsReported() throws Exception {
    services("Missing");
    options.add("-Dio.nccl4j.cudart.library=" + cudart);
    String output = run();
    assumeTrue(output.startsWith("no nccl\n"), "the system's loader knows a libnccl");
    assertTrue(
        containsAll(
            output,
            "services: threw java.util.ServiceConfigurationError: io.nccl4j.NativeLibraryLookup:"
                + " Provider io.nccl4j.ffm.Lookups$Missing not found",
            "system loader: libnccl.so.2: "),
        output);
  }

  /** Declares services of {@link Lookups}. */
  private void services(String... names) throws IOException {
    Path folder = Files.createDirectories(temp.resolve("services/META-INF/services"));
    Files.write(
        folder.resolve("io.nccl4j.NativeLibraryLookup"),
        Stream.of(names).map("io.nccl4j.ffm.Lookups$"::concat).toList());
  }

  @Test
  void standardNamesAreLoadedBySystemLoader() throws Exception {
    environment.put("LD_LIBRARY_PATH", nccl.getParent().toString());
    assertEquals(loaded(nccl, cudart), run());
  }

  @Test
  void runtimeNewerThanDriverIsSkippedForOlderOne() throws Exception {
    Path directory = Files.createDirectory(temp.resolve("lib"));
    Files.copy(cudart, directory.resolve("libcudart.so.13"));
    Path older = Files.copy(cudart, directory.resolve("libcudart.so.12"));
    environment.put("LD_LIBRARY_PATH", directory + ":" + nccl.getParent());
    environment.put("NCCL4J_STANDIN_DRIVER", "12080");
    assertEquals("cudart from " + older + "\n", run("cudart"));
  }

  @Test
  void runtimeNewerThanDriverIsExplainedIfItIsTheOnlyOne() throws Exception {
    environment.put("LD_LIBRARY_PATH", nccl.getParent().toString());
    environment.put("NCCL4J_STANDIN_DRIVER", "12080");
    String output = run();
    assumeTrue(!output.contains("cudart from"), "the system's loader knows another libcudart");
    assertTrue(output.startsWith("no cudart\n"), output);
    assertTrue(
        output.contains("libcudart.so.13: is of CUDA 13.0; the driver runs CUDA 12.8"), output);
  }

  @Test
  void namedRuntimeNewerThanDriverIsNotReplaced() throws Exception {
    options.add("-Dio.nccl4j.nccl.library=" + nccl);
    options.add("-Dio.nccl4j.cudart.library=" + cudart);
    environment.put("NCCL4J_STANDIN_DRIVER", "12080");
    String output = run();
    assertTrue(output.startsWith("no device\ncudaGetDeviceCount: "), output);
    assertTrue(output.contains("cudaErrorInsufficientDriver"), output);
  }

  @Test
  void wheelsOfActivePythonAreFound() throws Exception {
    Path packages = temp.resolve("site-packages");
    Path copy = copyNccl(packages.resolve("nvidia/nccl/lib"));
    Path python = temp.resolve("bin/python3");
    Files.writeString(python, "#!/bin/sh\necho " + packages + "\n");
    assertTrue(python.toFile().setExecutable(true));
    assertEquals(loaded(copy, cudart), run());
  }

  @Test
  void pythonWarningsAndUnencodablePathsAreSkipped() throws Exception {
    Path packages = temp.resolve("site-packages");
    Path copy = copyNccl(packages.resolve("nvidia/nccl/lib"));
    Path python = temp.resolve("bin/python3");
    String commands = "echo a warning; printf '/home/j\\303\\266rg\\n'; echo " + packages;
    Files.writeString(python, "#!/bin/sh\n" + commands + "\n");
    assertTrue(python.toFile().setExecutable(true));
    environment.put("LC_ALL", "C");
    assertEquals(loaded(copy, cudart), run());
    Files.delete(copy);
    String output = run();
    assertTrue(
        output.contains("wheels of the active python3: cannot be named in this locale"), output);
    assertFalse(output.contains("a warning"), output);
  }

  @ParameterizedTest
  @ValueSource(strings = {"venv", "PYTHONPATH", "user site"})
  void packagesOfRealPythonAreFound(String kind) throws Exception {
    Path python = realPython();
    Path packages = temp.resolve("packages");
    environment.put("PATH", python.getParent().toString());
    switch (kind) {
      case "PYTHONPATH" -> environment.put(kind, "relative:" + packages);
      case "venv" -> {
        Path venv = temp.resolve("venv");
        output(python.toString(), "-m", "venv", "--without-pip", venv.toString());
        environment.put("PATH", venv.resolve("bin") + ":" + python.getParent());
        String purelib = "import sysconfig; print(sysconfig.get_path('purelib'))";
        packages = Path.of(output(venv.resolve("bin/python3").toString(), "-c", purelib));
      }
      default -> {
        environment.put("HOME", temp.toString());
        packages =
            Path.of(
                output(python.toString(), "-c", "import site; print(site.getusersitepackages())"));
      }
    }
    Path copy = copyNccl(packages.resolve("nvidia/nccl/lib"));
    assertEquals(loaded(copy, cudart), run());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "sysconfig.py",
        "site.py",
        "os.py",
        "encodings.py",
        "sitecustomize.py",
        "pyvenv.cfg",
        "python3",
        "libnccl.so.2",
        "libcudart.so.13"
      })
  void currentDirectoryIsNotTrusted(String trap) throws Exception {
    Path sprung = temp.resolve("sprung");
    directory = Files.createDirectory(temp.resolve("directory"));
    Path file = directory.resolve(trap);
    if (trap.startsWith("lib")) {
      Files.copy(trap.startsWith("libnccl") ? nccl : cudart, file);
    } else if (trap.equals("python3")) {
      Files.writeString(file, "#!/bin/sh\n: >" + sprung + "\n");
      assertTrue(file.toFile().setExecutable(true));
    } else {
      Files.writeString(file, "open('" + sprung + "', 'w')\n");
    }
    environment.put("PATH", ".::" + realPython().getParent());
    environment.put("PYTHONPATH", ":.");
    environment.put("LD_LIBRARY_PATH", ":.");
    if (trap.startsWith("libnccl")) {
      options.add("-Dio.nccl4j.cudart.library=" + cudart);
    }
    String output = trap.startsWith("libcudart") ? run("cudart") : run();
    assertFalse(Files.exists(sprung), () -> trap + " was run:\n" + output);
    assertFalse(output.contains("from " + directory), output);
    assertTrue(
        trap.startsWith("lib") || output.contains("wheels of the active python3: /"), output);
  }

  private static Path realPython() {
    return Stream.of("/usr/bin", "/usr/local/bin")
        .map(folder -> Path.of(folder, "python3"))
        .filter(Files::isExecutable)
        .findFirst()
        .orElseGet(() -> abort("there is no python3 with the system"));
  }

  private String output(String... command) throws Exception {
    ProcessBuilder builder = new ProcessBuilder(command);
    builder.environment().putAll(environment);
    Process process = builder.start();
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assumeTrue(process.waitFor() == 0 || !output.isEmpty(), String.join(" ", command));
    return output.strip();
  }

  @Test
  void condaPrefixIsFound() throws Exception {
    Path copy = copyNccl(temp.resolve("conda/lib"));
    environment.put("CONDA_PREFIX", temp.resolve("conda").toString());
    assertEquals(loaded(copy, cudart), run());
  }

  @Test
  void cudaHomeIsFound() throws Exception {
    Path copy = copyNccl(temp.resolve("cuda/lib64"));
    environment.put("CUDA_HOME", temp.resolve("cuda").toString());
    assertEquals(loaded(copy, cudart), run());
  }

  @Test
  void copiesAreListedOnceAndInSearchOrder() throws Exception {
    Path loader = copyNccl(temp.resolve("loader"));
    Path relative = copyNccl(temp.resolve("relative"));
    Path wheel = copyNccl(temp.resolve("packages/nvidia/nccl/lib"));
    Path broken = Files.createDirectories(temp.resolve("conda/lib")).resolve("libnccl.so.2");
    Files.writeString(broken, "text");
    Files.createSymbolicLink(
        Files.createDirectories(temp.resolve("cuda/lib64")).resolve("libnccl.so"), loader);
    environment.put("NCCL4J_NCCL_LIBRARY", nccl.toString());
    directory = temp;
    environment.put("LD_LIBRARY_PATH", "relative:" + loader.getParent() + ":/no/such/folder");
    fakePython();
    environment.put("CONDA_PREFIX", temp.resolve("conda").toString());
    environment.put("CUDA_HOME", temp.resolve("cuda").toString());
    assertEquals(
        """
        Copy[source=environment variable NCCL4J_NCCL_LIBRARY, path=%s, fault=null]
        Copy[source=system loader, path=%s, fault=is in the current directory, because LD_LIBRARY_PATH has an empty or relative entry]
        Copy[source=system loader, path=%s, fault=null]
        Copy[source=pip wheels of the active python3, path=%s, fault=null]
        Copy[source=environment variable CONDA_PREFIX, path=%s, fault=is not a shared library (not an ELF file)]
        """
            .formatted(nccl, relative, loader, wheel, broken),
        run("copies"));
  }

  @Test
  void copyInNamedFolderIsListedFirst() throws Exception {
    Path named = copyNccl(temp.resolve("named"));
    Path loader = copyNccl(temp.resolve("loader"));
    directory = temp;
    options.add("-Dio.nccl4j.nccl.library=named");
    environment.put("LD_LIBRARY_PATH", loader.getParent().toString());
    assertEquals(
        """
        Copy[source=system property io.nccl4j.nccl.library, path=%s, fault=null]
        Copy[source=system loader, path=%s, fault=null]
        """
            .formatted(named, loader),
        run("copies"));
    assertEquals(loaded(named, cudart), run());
  }

  @Test
  void copyRefusedInOnePlaceIsListedWhereItLoads() throws Exception {
    Path first = copyNccl(temp.resolve("first"));
    Path second = copyNccl(temp.resolve("second"));
    directory = temp;
    environment.put("LD_LIBRARY_PATH", "second:" + first.getParent() + ":" + second.getParent());
    assertEquals(
        """
        Copy[source=system loader, path=%s, fault=null]
        Copy[source=system loader, path=%s, fault=null]
        """
            .formatted(first, second),
        run("copies"));
  }

  /** Creates a python3 whose packages are in a folder of the test. */
  private void fakePython() throws IOException {
    Path python = temp.resolve("bin/python3");
    Files.writeString(python, "#!/bin/sh\necho " + temp.resolve("packages") + "\n");
    assertTrue(python.toFile().setExecutable(true));
  }

  /**
   * Copies libnccl into a directory, so that the path of the loaded library shows where it was
   * found. Names cudart by its property, because the system may have one.
   */
  private Path copyNccl(Path directory) throws Exception {
    options.add("-Dio.nccl4j.cudart.library=" + cudart);
    assumeTrue(run().startsWith("no nccl\n"), "the system's loader knows a libnccl");
    return Files.copy(nccl, Files.createDirectories(directory).resolve("libnccl.so.2"));
  }

  @Test
  void missingLibraryListsAttemptsAndRemedy() throws Exception {
    options.add("-Dio.nccl4j.cudart.library=" + cudart);
    String output = run();
    assumeTrue(output.startsWith("no nccl\n"), "the system's loader knows a libnccl");
    for (String part :
        List.of(
            "-Dio.nccl4j.nccl.library=PATH",
            "NCCL4J_NCCL_LIBRARY=PATH",
            "system loader: libnccl.so.2: cannot open shared object file",
            "system loader: libnccl.so: ",
            "pip wheels of the active python3: ",
            "environment variable CONDA_PREFIX: not set",
            "environment variable CUDA_HOME: " + temp.resolve("no-cuda/lib64"))) {
      assertTrue(output.contains(part), () -> "lacks '" + part + "':\n" + output);
    }
  }

  /** A file that was cut off crashes a process that loads it. */
  @ParameterizedTest
  @ValueSource(strings = {"property", "variable", "LD_LIBRARY_PATH", "python3", "CUDA_HOME"})
  void truncatedLibraryIsRefused(String source) throws Exception {
    options.add("-Dio.nccl4j.cudart.library=" + cudart);
    assumeTrue(run().startsWith("no nccl\n"), "the system's loader knows a libnccl");
    Path folder = Files.createDirectories(temp.resolve("packages/nvidia/nccl/lib"));
    Path file = folder.resolve("libnccl.so.2");
    Files.write(file, Arrays.copyOf(Files.readAllBytes(nccl), 100_000));
    switch (source) {
      case "property" -> options.add("-Dio.nccl4j.nccl.library=" + file);
      case "variable" -> environment.put("NCCL4J_NCCL_LIBRARY", file.toString());
      case "LD_LIBRARY_PATH" -> environment.put(source, folder.toString());
      case "CUDA_HOME" ->
          environment.put(source, Files.createSymbolicLink(temp.resolve("lib"), folder) + "/..");
      default -> fakePython();
    }
    for (String mode : List.of("nccl", "auto")) {
      String output = run(mode);
      assertTrue(output.startsWith("no nccl\n"), mode + ": " + output);
      assertTrue(output.contains("is truncated: it has 100000 of at least "), output);
    }
  }

  @Test
  void pipeIsRefusedWithoutWaitingForItsWriter() throws Exception {
    Path pipe = temp.resolve("libnccl.so.2");
    output("mkfifo", pipe.toString());
    options.add("-Dio.nccl4j.nccl.library=" + pipe);
    options.add("-Dio.nccl4j.cudart.library=" + cudart);
    String output = run();
    assertTrue(output.startsWith("no nccl\n"), output);
    assertTrue(output.contains(pipe + ": is not a regular file"), output);
  }

  @Test
  void missingNativeAccessNamesTheFlag() throws Exception {
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
    command.add("-XX:TieredStopAtLevel=1");
    command.addAll(options);
    command.add("-cp");
    command.add(
        String.join(
            ":",
            System.getProperty("java.class.path"),
            System.getProperty("jdk.module.path", ""),
            temp.resolve("services").toString()));
    command.add(LibraryUser.class.getName());
    command.addAll(List.of(arguments));
    ProcessBuilder builder =
        new ProcessBuilder(command)
            .directory(directory == null ? null : directory.toFile())
            .redirectError(temp.resolve("errors").toFile());
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
