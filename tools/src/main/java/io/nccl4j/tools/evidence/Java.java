package io.nccl4j.tools.evidence;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** The command line of another JVM of the same Java. */
final class Java {
  private Java() {}

  /**
   * Returns the start of a command line, with this process's settings of logging and libraries. The
   * class path goes into {@code CLASSPATH}, to keep the command line short.
   */
  static List<String> command(String mainClass, String... flags) {
    List<String> words = new ArrayList<>();
    words.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    words.addAll(
        List.of(
            "-Xlog:disable",
            "-Xlog:all=error:stderr",
            "-XX:+UseSerialGC",
            "-XX:-CreateCoredumpOnCrash",
            "--enable-native-access=ALL-UNNAMED",
            "--illegal-native-access=deny"));
    System.getProperties().stringPropertyNames().stream()
        .filter(name -> name.startsWith("log4j") || name.matches("io\\.nccl4j\\..*\\.library"))
        .sorted()
        .forEach(name -> words.add("-D" + name + "=" + System.getProperty(name)));
    words.addAll(List.of(flags));
    words.add(mainClass);
    return words;
  }

  static String classPath() {
    return System.getProperty("java.class.path");
  }
}
