package io.nccl4j.reference;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.UniqueId;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.logging.log4j.LogManager;

/** Processes with ranks of a communicator, whose id this process has created. */
public final class RankProcesses implements AutoCloseable {
  private static final Duration LIMIT = Duration.ofSeconds(45);

  private final List<Process> processes = new ArrayList<>();
  private final List<String> lines = new ArrayList<>();
  private final Transport links;
  private final Algorithm algorithm;
  private final Duration timeout;
  private String start = "exec";

  RankProcesses(Transport links, Duration timeout) {
    this(links, Algorithm.AUTO, timeout);
  }

  RankProcesses(Transport links, Algorithm algorithm, Duration timeout) {
    this.links = links;
    this.algorithm = algorithm;
    this.timeout = timeout;
  }

  /** Limits the size of files of processes that are started from now on. */
  void limitFiles(int kibibytes) {
    start = "ulimit -f " + kibibytes + "; exec";
  }

  /** Runs processes that are started from now on as another user, who can read any file. */
  void changeUser() {
    start =
        "exec setpriv --reuid 65534 --inh-caps +dac_read_search --ambient-caps +dac_read_search";
  }

  /** Starts one process for each number, with that number of ranks. */
  void start(String program, String argument, int... ranksPerProcess) {
    UniqueId id = ReferenceBackend.open(1).newUniqueId();
    int size = IntStream.of(ranksPerProcess).sum();
    int first = 0;
    for (int ranks : ranksPerProcess) {
      start(id.toHex(), size, IntStream.range(first, first + ranks), program, argument);
      first += ranks;
    }
  }

  /** Starts one process. */
  void start(String id, int size, IntStream ranks, String program, String argument) {
    try {
      Process process =
          new ProcessBuilder(
                  "bash",
                  "-c",
                  start + " \"$@\"",
                  "bash",
                  Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                  "-XX:TieredStopAtLevel=1",
                  "-Xmx256m",
                  "-Dlog4j2.simplelogLevel=WARN",
                  "-cp",
                  classPath(),
                  RankProcess.class.getName(),
                  id,
                  Integer.toString(size),
                  ranks.mapToObj(Integer::toString).collect(Collectors.joining(",")),
                  Long.toString(timeout.toMillis()),
                  links.name(),
                  program,
                  argument,
                  algorithm.name())
              .redirectErrorStream(true)
              .start();
      processes.add(process);
      Thread.ofPlatform().daemon().name("lines-" + process.pid()).start(() -> read(process));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Returns the class path of a process: the tests, the reference, nccl4j and Log4j's API. */
  public static String classPath() {
    return Stream.of(RankProcess.class, ReferenceBackend.class, Backend.class, LogManager.class)
        .map(RankProcesses::location)
        .collect(Collectors.joining(File.pathSeparator));
  }

  /** Returns the location of a class: a folder of classes, or a JAR file. */
  private static String location(Class<?> type) {
    String name = type.getName().replace('.', '/') + ".class";
    String url = type.getResource("/" + name).toString();
    String root = url.substring(0, url.length() - name.length() - 1);
    if (root.startsWith("jar:")) {
      root = root.substring("jar:".length(), root.length() - 1);
    }
    return Path.of(URI.create(root)).toString();
  }

  private void read(Process process) {
    try (BufferedReader reader = process.inputReader()) {
      for (String line = reader.readLine(); line != null; line = reader.readLine()) {
        synchronized (lines) {
          lines.add(line);
          lines.notifyAll();
        }
      }
    } catch (IOException e) {
      synchronized (lines) {
        lines.add("the output of process " + process.pid() + " broke: " + e);
      }
    }
  }

  /** Waits until a rank has printed a line that contains a text; returns the line. */
  String await(int rank, String text) {
    long end = System.nanoTime() + LIMIT.toNanos();
    synchronized (lines) {
      while (true) {
        for (String line : lines) {
          if (line.startsWith("rank " + rank + ": ") && line.contains(text)) {
            return line;
          }
        }
        long left = (end - System.nanoTime()) / 1_000_000;
        if (left <= 0) {
          throw new AssertionError(
              "rank " + rank + " did not print '" + text + "' in " + LIMIT + ":\n" + this);
        }
        try {
          lines.wait(left);
        } catch (InterruptedException e) {
          throw new AssertionError("interrupted", e);
        }
      }
    }
  }

  void awaitAll(int size, String text) {
    IntStream.range(0, size).forEach(rank -> await(rank, text));
  }

  void assertPrinted(int rank, String... texts) {
    String line = await(rank, texts[0]);
    for (String text : texts) {
      assertTrue(line.contains(text), () -> "'" + text + "' is not in: " + line);
    }
  }

  long pid(int process) {
    return processes.get(process).pid();
  }

  /** Sends a signal to a process. */
  void signal(int process, String name) {
    try {
      Process kill = new ProcessBuilder("kill", "-" + name, Long.toString(pid(process))).start();
      assertEquals(0, kill.waitFor());
    } catch (IOException | InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @Override
  public String toString() {
    synchronized (lines) {
      return String.join("\n", lines);
    }
  }

  @Override
  public void close() {
    processes.forEach(Process::destroyForcibly);
    for (Process process : processes) {
      try {
        assertTrue(process.waitFor(30, TimeUnit.SECONDS), "a process did not end");
      } catch (InterruptedException e) {
        throw new AssertionError("interrupted", e);
      }
    }
  }
}
