package io.nccl4j.tools.processes;

import io.nccl4j.tools.cli.Commands;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.ProcessBuilder.Redirect;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * Runs several processes of one command on this host. Once one has exited, the others must exit
 * within a grace period or are terminated. None outlives this process.
 *
 * <p>The standard input of each process is a pipe from this one. The command exits when the pipe
 * closes, so that it also exits when this process is killed.
 */
public final class Processes {
  /**
   * The most processes that a command may start per processor of this host. With more, processes
   * mostly wait for processors and memory.
   */
  public static final int PER_PROCESSOR = 16;

  private static final int SIGNALLED = 128;

  private final String name;
  private final int ranksPerProcess;
  private final Duration grace;
  private final PrintStream err;
  private final List<Process> processes = new ArrayList<>();
  private final BlockingQueue<Integer> exited = new LinkedBlockingQueue<>();

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
    try (ChildProcesses children = new ChildProcesses("nccl4j-ranks-")) {
      for (int number = 0; number < count; number++) {
        start(children, number, count, command);
      }
      return await(children, limit);
    }
  }

  private void start(ChildProcesses children, int number, int count, List<String> command)
      throws IOException {
    Path rendezvous = children.folder();
    Map<String, String> environment = new HashMap<>(System.getenv());
    environment.putAll(
        Map.of(
            "NCCL4J_RANK", "" + number,
            "NCCL4J_WORLD_SIZE", "" + count,
            "NCCL4J_LOCAL_RANK", "" + number,
            "NCCL4J_LOCAL_WORLD_SIZE", "" + count,
            "NCCL4J_RUN_ID",
                UUID.nameUUIDFromBytes(rendezvous.toString().getBytes(StandardCharsets.UTF_8))
                    .toString(),
            "NCCL4J_RENDEZVOUS", "file:" + rendezvous.toUri().getRawPath()));
    boolean first = number == 0;
    Process process =
        children.start(
            command,
            environment,
            first ? Redirect.INHERIT : Redirect.PIPE,
            first ? Redirect.PIPE : null);
    processes.add(process);
    children.forward(
        first ? process.errorReader() : process.inputReader(),
        line -> print(ranks(number) + ": " + line));
    CompletableFuture<Void> _ = process.onExit().thenRun(() -> exited.add(number));
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

  private int await(ChildProcesses children, Duration limit) {
    long deadline = limit == null ? Long.MAX_VALUE : System.nanoTime() + limit.toNanos();
    boolean limited = limit != null;
    int worst = Commands.OK;
    for (int left = processes.size(); left > 0; left--) {
      Integer number = limited ? poll(deadline - System.nanoTime()) : poll(Long.MAX_VALUE);
      if (number == null) {
        return Math.max(worst, reportTimeout(limit, worst));
      }
      int status = processes.get(number).exitValue();
      if (status != Commands.OK && !children.closing()) {
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
    return worst == Commands.OK ? Commands.TIMED_OUT : worst;
  }

  private static String describe(int status) {
    return status > SIGNALLED
        ? "status " + status + " (signal " + (status - SIGNALLED) + ")"
        : "status " + status;
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
              Runtime.getRuntime().halt(Commands.FAILED);
            });
  }
}
