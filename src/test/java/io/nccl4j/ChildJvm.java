package io.nccl4j;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Runs a program in a separate JVM, where its side effects do not disturb other tests. */
public final class ChildJvm {
  private static final int TIMEOUT_SECONDS = 60;

  private ChildJvm() {}

  /** Runs a program with this process's native libraries; returns its standard output. */
  public static String run(Class<?> program, List<String> options, String... arguments)
      throws Exception {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.add("--enable-native-access=ALL-UNNAMED");
    command.addAll(options);
    for (String label : List.of("nccl", "cudart")) {
      String property = "io.nccl4j." + label + ".library";
      if (System.getProperty(property) != null) {
        command.add("-D" + property + "=" + System.getProperty(property));
      }
    }
    command.add("-cp");
    command.add(
        System.getProperty("java.class.path")
            + File.pathSeparator
            + System.getProperty("jdk.module.path", ""));
    command.add(program.getName());
    command.addAll(List.of(arguments));
    Process process =
        new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    try {
      CompletableFuture<String> output = CompletableFuture.supplyAsync(() -> read(process));
      if (!process.waitFor(TIMEOUT_SECONDS, TimeUnit.SECONDS)) {
        throw new AssertionError(
            program.getSimpleName() + " did not exit within " + TIMEOUT_SECONDS + " s");
      }
      String text = output.get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
      if (process.exitValue() != 0) {
        throw new AssertionError("exit " + process.exitValue() + ":\n" + text);
      }
      return text;
    } finally {
      process.destroyForcibly();
    }
  }

  private static String read(Process process) {
    try {
      return new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException e) {
      return "reading the output failed: " + e;
    }
  }
}
