package io.nccl4j.tools.processes;

import io.nccl4j.tools.cli.OutputFile;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.ProcessBuilder.Redirect;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.Stream;

/**
 * Processes that this one starts, and a folder for their files. {@link #close} terminates them and
 * deletes the folder, and so does a signal that ends this process.
 */
public final class ChildProcesses implements AutoCloseable {
  private static final Duration TERMINATION_TIMEOUT = Duration.ofSeconds(5);

  private final List<Process> processes = new ArrayList<>();
  private final List<Thread> readers = new ArrayList<>();
  private final Path folder;
  private volatile boolean closing;

  /**
   * Creates the folder; starts no process yet.
   *
   * @param prefix the beginning of the folder's name
   * @throws IOException if the folder cannot be created
   */
  public ChildProcesses(String prefix) throws IOException {
    // A signal that arrives now waits for the lock, so that it finds the folder.
    synchronized (this) {
      Runtime.getRuntime().addShutdownHook(new Thread(this::closeAtExit, "child-processes-end"));
      this.folder = Files.createTempDirectory(prefix);
    }
  }

  /** {@return the folder} */
  public Path folder() {
    return folder;
  }

  /** {@return whether the processes are being terminated} */
  boolean closing() {
    return closing;
  }

  /**
   * Starts a process, whose standard input is a pipe from this one.
   *
   * @param command its command line
   * @param environment its whole environment
   * @param out its standard output
   * @param err its standard error, or null for the same as {@code out}
   * @throws IOException if it cannot be started
   * @throws IllegalStateException if this process is exiting
   */
  synchronized Process start(
      List<String> command, Map<String, String> environment, Redirect out, Redirect err)
      throws IOException {
    if (closing) {
      throw new IllegalStateException("this process is exiting and cannot start others");
    }
    ProcessBuilder builder = new ProcessBuilder(command).redirectOutput(out);
    if (err == null) {
      builder.redirectErrorStream(true);
    } else {
      builder.redirectError(err);
    }
    builder.environment().clear();
    builder.environment().putAll(environment);
    Process process = builder.start();
    processes.add(process);
    return process;
  }

  /** Passes on each line that a process prints; {@link #close} waits for the last one. */
  synchronized void forward(BufferedReader reader, Consumer<String> print) {
    Runnable forwarding =
        () -> {
          try (Stream<String> lines = reader.lines()) {
            lines.forEach(print);
          } catch (UncheckedIOException e) {
            print.accept("the rest of the output cannot be read: " + e.getMessage());
          }
        };
    readers.add(Thread.ofPlatform().daemon().name("child-output").start(forwarding));
  }

  /**
   * Runs a process and waits for it; terminates it after a time limit.
   *
   * @param command its command line
   * @param environment its whole environment
   * @param out its standard output
   * @param err its standard error, or null for the same as {@code out}
   * @param limit the time limit
   * @return its exit status; empty if it was terminated
   * @throws IOException if it cannot be started
   * @throws IllegalStateException if this process is exiting or the thread is interrupted
   */
  public OptionalInt run(
      List<String> command,
      Map<String, String> environment,
      Redirect out,
      Redirect err,
      Duration limit)
      throws IOException {
    Process process = start(command, environment, out, err);
    boolean exited = hasExited(process, limit.toNanos());
    terminate();
    if (closing || Thread.currentThread().isInterrupted()) {
      throw new IllegalStateException("this process is exiting");
    }
    return exited ? OptionalInt.of(process.exitValue()) : OptionalInt.empty();
  }

  /** Terminates all running processes, by force after a time-out, then their descendants. */
  private synchronized void terminate() {
    // Those of a process that has exited cannot be found any more.
    List<ProcessHandle> descendants = processes.stream().flatMap(Process::descendants).toList();
    // Process.destroy would also close the pipes, with unread output.
    processes.stream().filter(Process::isAlive).forEach(process -> process.toHandle().destroy());
    long deadline = System.nanoTime() + TERMINATION_TIMEOUT.toNanos();
    for (Process process : processes) {
      if (!hasExited(process, deadline - System.nanoTime())) {
        process.descendants().forEach(ProcessHandle::destroyForcibly);
        process.toHandle().destroyForcibly();
      }
    }
    descendants.forEach(ProcessHandle::destroyForcibly);
    // One that hangs in a driver cannot be killed, and a child may keep a pipe open.
    long end = System.nanoTime() + TERMINATION_TIMEOUT.toNanos();
    processes.forEach(process -> hasExited(process, end - System.nanoTime()));
    readers.forEach(reader -> join(reader, end - System.nanoTime()));
    processes.clear();
    readers.clear();
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

  private synchronized void closeAtExit() {
    if (folder == null) {
      // It could not be created, so there are no processes either.
      return;
    }
    try {
      close();
    } catch (IOException e) {
      System.err.println(e.getMessage());
    }
  }

  /**
   * Terminates the processes and deletes the folder; idempotent.
   *
   * @throws IOException if a file cannot be deleted
   */
  @Override
  public synchronized void close() throws IOException {
    closing = true;
    terminate();
    OutputFile.deleteFolder(folder);
  }
}
