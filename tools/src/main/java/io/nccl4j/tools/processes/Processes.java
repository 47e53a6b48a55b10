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
 * Runs several processes of one command on this host. Once one has exited, the others must exit
 * within a grace period or are terminated. None outlives this process.
 *
 * <p>The standard input of each process is a pipe from this one. The command exits when the pipe
 * closes, so that it also exits when this process is killed.
 */
public final class Processes {
  /** The exit status of a failure. */
  public static final int FAILED = 1;

  /** The exit status of a time-out. */
  public static final int TIMED_OUT = 4;

  /**
   * The most processes that a command may start per processor of this host. With more, processes
   * mostly wait for processors and memory.
   */
  public static final int PER_PROCESSOR = 16;

  private static final int OK = 0;
  private static final int SIGNALLED = 128;
  private static final Duration TERMINATION_TIMEOUT = Duration.ofSeconds(5);

  private final String name;
  private final int ranksPerProcess;
  private final Duration grace;
  private final PrintStream err;
  private final List<Process> processes = new ArrayList<>();
  private final List<Future<?>> exits = new ArrayList<>();
  private final List<Thread> readers = new ArrayList<>();
  private final BlockingQueue<Integer> exited = new LinkedBlockingQueue<>();
  private Path rendezvous;
  private volatile boolean terminating;

  /**
   * Creates a runner, which starts no process yet.
   *
   * @param name the prefix of messages
   * @param ranksPerProcess the number of ranks per process
   * @param grace how long the other processes may take to exit once one has exited
   * @param err receives messages, and the output of the processes except process 0's stdout
   */
  public Processes(String name, int ranksPerProcess, Duration grace, PrintStream err) {
    this.name = name;
    this.ranksPerProcess = ranksPerProcess;
    this.grace = grace;
    this.err = err;
  }

  /** {@return the most processes that a command may start on this host} */
  public static int most() {
    return PER_PROCESSOR * Runtime.getRuntime().availableProcessors();
  }

  /**
   * Starts the processes, waits for all of them, and returns the highest exit status.
   *
   * @param command the command line of each process
   * @param limit the time limit for all processes, or null for none
   * @throws IOException if a process cannot be started
   */
  public int run(int count, List<String> command, Duration limit) throws IOException {
    // A signal that terminates this process terminates the others too.
    Runtime.getRuntime().addShutdownHook(new Thread(this::terminate, "processes-end"));
    try {
      createRendezvous();
      for (int number = 0; number < count; number++) {
        start(number, count, command);
      }
      return await(limit);
    } finally {
      terminate();
    }
  }

  private void createRendezvous() throws IOException {
    synchronized (processes) {
      checkNotTerminating();
      rendezvous = Files.createTempDirectory("nccl4j-ranks-");
    }
  }

  /** A process started after terminate() would outlive this one. */
  private void checkNotTerminating() {
    if (terminating) {
      throw new IllegalStateException("this process is exiting and cannot start others");
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
                    UUID.nameUUIDFromBytes(rendezvous.toString().getBytes(StandardCharsets.UTF_8))
                        .toString(),
                "NCCL4J_RENDEZVOUS", "file:" + rendezvous.toUri().getRawPath()));
    if (number == 0) {
      builder.redirectOutput(ProcessBuilder.Redirect.INHERIT);
    } else {
      builder.redirectErrorStream(true);
    }
    synchronized (processes) {
      checkNotTerminating();
      Process process = builder.start();
      processes.add(process);
      BufferedReader lines = number == 0 ? process.errorReader() : process.inputReader();
      readers.add(
          Thread.ofPlatform()
              .daemon()
              .name("process-output-" + number)
              .start(() -> forward(number, lines)));
      exits.add(process.onExit().thenRun(() -> exited.add(number)));
    }
  }

  /** Forwards the output of a process, each line prefixed with its ranks. */
  private void forward(int number, BufferedReader reader) {
    try (Stream<String> lines = reader.lines()) {
      lines.forEach(line -> print(ranks(number) + ": " + line));
    } catch (UncheckedIOException e) {
      print(name + ": the output of " + ranks(number) + " cannot be read: " + e.getMessage());
    }
  }

  private String ranks(int number) {
    int first = number * ranksPerProcess;
    return ranksPerProcess == 1
        ? "rank " + first
        : "ranks " + first + "-" + (first + ranksPerProcess - 1);
  }

  private void print(String line) {
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
        return Math.max(worst, reportTimeout(limit, worst));
      }
      int status = processes.get(number).exitValue();
      if (status != OK && !terminating) {
        worst = Math.max(worst, status);
        print(name + ": " + ranks(number) + " exited with " + describe(status));
      }
      long byGrace = System.nanoTime() + grace.toNanos();
      deadline = limited ? Math.min(deadline, byGrace) : byGrace;
      limited = true;
    }
    return worst;
  }

  private Integer poll(long nanos) {
    try {
      return exited.poll(nanos, TimeUnit.NANOSECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("interrupted while the processes were running", e);
    }
  }

  /** Reports the processes that are still running; the caller terminates them. */
  private int reportTimeout(Duration limit, int worst) {
    for (int number = 0; number < processes.size(); number++) {
      if (processes.get(number).isAlive()) {
        print(
            processes.stream().allMatch(Process::isAlive)
                ? "%s: time-out: %s is still running after %d s"
                    .formatted(name, ranks(number), limit.toSeconds())
                : "%s: %s is still running %d s after another process exited; terminating it"
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

  /** Terminates all running processes, by force after a time-out; idempotent. */
  private synchronized void terminate() {
    List<Process> all;
    List<Thread> reading;
    synchronized (processes) {
      terminating = true;
      all = List.copyOf(processes);
      reading = List.copyOf(readers);
    }
    // Process.destroy would also close the pipes, with unread output.
    all.stream().filter(Process::isAlive).forEach(process -> process.toHandle().destroy());
    long deadline = System.nanoTime() + TERMINATION_TIMEOUT.toNanos();
    for (Process process : all) {
      if (!hasExited(process, deadline - System.nanoTime())) {
        process.toHandle().destroyForcibly();
      }
    }
    // A child of a process may keep the pipe open.
    long end = System.nanoTime() + TERMINATION_TIMEOUT.toNanos();
    reading.forEach(reader -> join(reader, end - System.nanoTime()));
    deleteRendezvous();
  }

  private static boolean hasExited(Process process, long nanos) {
    try {
      return process.waitFor(nanos, TimeUnit.NANOSECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return false;
    }
  }

  private static void join(Thread reader, long nanos) {
    try {
      reader.join(Duration.ofNanos(nanos));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private void deleteRendezvous() {
    if (rendezvous == null) {
      return;
    }
    try {
      OutputFile.deleteFolder(rendezvous);
    } catch (IOException e) {
      print(name + ": " + e.getMessage());
    }
  }

  /**
   * Returns the command line of this process without its last arguments.
   *
   * @param arguments the number of arguments to leave out
   * @throws IOException if the command line cannot be read
   */
  public static List<String> ownCommand(int arguments) throws IOException {
    String line = Files.readString(Path.of("/proc/self/cmdline"));
    List<String> words = List.of(line.substring(0, line.length() - 1).split("\0", -1));
    List<String> command = new ArrayList<>(words.subList(0, words.size() - arguments));
    // The first word may be a name that was resolved along the PATH.
    command.set(0, ProcessHandle.current().info().command().orElse(command.getFirst()));
    return command;
  }

  /** Exits this process when its parent exits, which closes the pipe to standard input. */
  public static void endWithParent() {
    Thread.ofPlatform()
        .daemon()
        .name("processes-parent")
        .start(
            () -> {
              try {
                while (System.in.read() >= 0) {
                  // Only the end of the stream counts.
                }
              } catch (IOException e) {
                System.err.println("cannot watch the parent process: " + e);
              }
              Runtime.getRuntime().halt(FAILED);
            });
  }
}
