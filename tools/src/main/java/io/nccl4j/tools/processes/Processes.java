package io.nccl4j.tools.processes;

import io.nccl4j.tools.cli.OutputFile;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * Several processes of one command on this host, from start to end: where one fails, all end, and
 * none outlives this process.
 *
 * <p>The standard input of each is a pipe from this process, which the command watches: it ends
 * when this process has gone, even where a signal gave that no time to say so.
 */
public final class Processes {
  /** The status where a process, or this one's part, has failed. */
  public static final int FAILED = 1;

  /** The status where a time-out has ended the processes. */
  public static final int TIMED_OUT = 4;

  /**
   * How many processes a command may start for each processor of this machine: beyond this, they
   * mostly wait for a processor, and for memory.
   */
  public static final int PER_PROCESSOR = 16;

  private static final int OK = 0;
  private static final int SIGNALLED = 128;
  private static final Duration FORCE = Duration.ofSeconds(5);

  private final String name;
  private final int ranksEach;
  private final Duration grace;
  private final PrintStream err;
  private final List<Process> processes = new ArrayList<>();
  private final List<Future<?>> exits = new ArrayList<>();
  private final List<Thread> readers = new ArrayList<>();
  private final BlockingQueue<Integer> ended = new LinkedBlockingQueue<>();
  private Path meeting;
  private volatile boolean ending;

  /**
   * Prepares to start processes.
   *
   * @param name what messages start with
   * @param ranksEach how many ranks each process has
   * @param grace how long the others may take to end once one has
   * @param err where messages go, and what the processes say but for the table
   */
  public Processes(String name, int ranksEach, Duration grace, PrintStream err) {
    this.name = name;
    this.ranksEach = ranksEach;
    this.grace = grace;
    this.err = err;
  }

  /** {@return how many processes a command may start on this machine} */
  public static int most() {
    return PER_PROCESSOR * Runtime.getRuntime().availableProcessors();
  }

  /**
   * Starts the processes, waits for all of them, and returns the worst status.
   *
   * @param command what each is started with
   * @param limit how long all may take, or null for any time
   * @throws IOException if a process cannot be started
   */
  public int run(int count, List<String> command, Duration limit) throws IOException {
    // A signal that ends this process ends the others too.
    Runtime.getRuntime().addShutdownHook(new Thread(this::end, "processes-end"));
    try {
      makeMeeting();
      for (int number = 0; number < count; number++) {
        start(number, count, command);
      }
      return await(limit);
    } finally {
      end();
    }
  }

  private void makeMeeting() throws IOException {
    synchronized (processes) {
      checkNotEnding();
      meeting = Files.createTempDirectory("nccl4j-ranks-");
    }
  }

  /** What end() does not see would outlive this process. */
  private void checkNotEnding() {
    if (ending) {
      throw new IllegalStateException("this process is ending, and starts no other");
    }
  }

  private void start(int number, int count, List<String> command) throws IOException {
    ProcessBuilder builder = new ProcessBuilder(command);
    builder
        .environment()
        .putAll(
            Map.of(
                "NCCL4J_RANK", "" + number,
                "NCCL4J_WORLD_SIZE", "" + count,
                "NCCL4J_LOCAL_RANK", "" + number,
                "NCCL4J_LOCAL_WORLD_SIZE", "" + count,
                "NCCL4J_RUN_ID",
                    UUID.nameUUIDFromBytes(meeting.toString().getBytes(StandardCharsets.UTF_8))
                        .toString(),
                "NCCL4J_RENDEZVOUS", "file:" + meeting.toUri().getRawPath()));
    if (number == 0) {
      builder.redirectOutput(ProcessBuilder.Redirect.INHERIT);
    } else {
      builder.redirectErrorStream(true);
    }
    synchronized (processes) {
      checkNotEnding();
      Process process = builder.start();
      processes.add(process);
      BufferedReader lines = number == 0 ? process.errorReader() : process.inputReader();
      readers.add(
          Thread.ofPlatform()
              .daemon()
              .name("process-output-" + number)
              .start(() -> pass(number, lines)));
      exits.add(process.onExit().thenRun(() -> ended.add(number)));
    }
  }

  /** Passes on what a process says, each line with its ranks in front. */
  private void pass(int number, BufferedReader lines) {
    try (Stream<String> said = lines.lines()) {
      said.forEach(line -> say(ranks(number) + ": " + line));
    } catch (UncheckedIOException e) {
      say(name + ": the output of " + ranks(number) + " cannot be read: " + e.getMessage());
    }
  }

  private String ranks(int number) {
    int first = number * ranksEach;
    return ranksEach == 1 ? "rank " + first : "ranks " + first + "-" + (first + ranksEach - 1);
  }

  private void say(String line) {
    synchronized (err) {
      err.println(line);
      err.flush();
    }
  }

  private int await(Duration limit) {
    long deadline = limit == null ? Long.MAX_VALUE : System.nanoTime() + limit.toNanos();
    boolean limited = limit != null;
    int worst = OK;
    for (int left = processes.size(); left > 0; left--) {
      Integer number = limited ? poll(deadline - System.nanoTime()) : poll(Long.MAX_VALUE);
      if (number == null) {
        return Math.max(worst, late(limit, worst));
      }
      int status = processes.get(number).exitValue();
      if (status != OK && !ending) {
        worst = Math.max(worst, status);
        say(name + ": " + ranks(number) + " ended with " + describe(status));
      }
      long byGrace = System.nanoTime() + grace.toNanos();
      deadline = limited ? Math.min(deadline, byGrace) : byGrace;
      limited = true;
    }
    return worst;
  }

  private Integer poll(long nanos) {
    try {
      return ended.poll(nanos, TimeUnit.NANOSECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("interrupted while the processes were running", e);
    }
  }

  /** Says which processes have not ended in time; they are ended next. */
  private int late(Duration limit, int worst) {
    for (int number = 0; number < processes.size(); number++) {
      if (processes.get(number).isAlive()) {
        say(
            processes.stream().allMatch(Process::isAlive)
                ? "%s: time-out: %s has not ended after %d s"
                    .formatted(name, ranks(number), limit.toSeconds())
                : "%s: %s had not ended %d s after another process; it is ended"
                    .formatted(name, ranks(number), grace.toSeconds()));
      }
    }
    return worst == OK ? TIMED_OUT : worst;
  }

  private static String describe(int status) {
    return status > SIGNALLED
        ? "status " + status + " (signal " + (status - SIGNALLED) + ")"
        : "status " + status;
  }

  /** Ends what is still running, by force where asking does not help; idempotent. */
  private synchronized void end() {
    List<Process> all;
    List<Thread> reading;
    synchronized (processes) {
      ending = true;
      all = List.copyOf(processes);
      reading = List.copyOf(readers);
    }
    // Process.destroy would close the pipes too, with the last words in them.
    all.stream().filter(Process::isAlive).forEach(process -> process.toHandle().destroy());
    long deadline = System.nanoTime() + FORCE.toNanos();
    for (Process process : all) {
      if (!hasEnded(process, deadline - System.nanoTime())) {
        process.toHandle().destroyForcibly();
      }
    }
    reading.forEach(Processes::join);
    removeMeeting();
  }

  private static boolean hasEnded(Process process, long nanos) {
    try {
      return process.waitFor(nanos, TimeUnit.NANOSECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return false;
    }
  }

  private static void join(Thread reader) {
    try {
      // What a process has started itself may keep the pipe open.
      reader.join(Duration.ofSeconds(1));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private void removeMeeting() {
    if (meeting == null) {
      return;
    }
    try {
      OutputFile.deleteFolder(meeting);
    } catch (IOException e) {
      say(name + ": " + e.getMessage());
    }
  }

  /** Returns what this process was started with, up to the command's own arguments. */
  public static List<String> ownCommand(int arguments) throws IOException {
    String line = Files.readString(Path.of("/proc/self/cmdline"));
    List<String> words = List.of(line.substring(0, line.length() - 1).split("\0", -1));
    List<String> command = new ArrayList<>(words.subList(0, words.size() - arguments));
    // The first word may be a name that was looked for along the PATH.
    command.set(0, ProcessHandle.current().info().command().orElse(command.getFirst()));
    return command;
  }

  /** Ends this process when the one that started it has gone: its end of the pipe closes. */
  public static void endWithParent() {
    Thread.ofPlatform()
        .daemon()
        .name("processes-parent")
        .start(
            () -> {
              try {
                while (System.in.read() >= 0) {
                  // Nobody writes; only the end counts.
                }
              } catch (IOException e) {
                System.err.println("the process that started this one cannot be watched: " + e);
              }
              Runtime.getRuntime().halt(FAILED);
            });
  }
}
