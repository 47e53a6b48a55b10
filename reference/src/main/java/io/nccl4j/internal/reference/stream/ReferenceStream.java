package io.nccl4j.internal.reference.stream;

import io.nccl4j.NcclException;
import io.nccl4j.NcclResult;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.internal.reference.rank.IdleStrategy;
import io.nccl4j.internal.reference.rank.RankExecution;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.spi.BufferMemory;
import io.nccl4j.spi.Contract;
import io.nccl4j.spi.EventDriver;
import io.nccl4j.spi.OperationTrace;
import io.nccl4j.spi.PendingLaunch;
import io.nccl4j.spi.StreamContext;
import io.nccl4j.spi.StreamDriver;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import org.apache.logging.log4j.Logger;

/**
 * A stream of the reference backend: a queue with one daemon thread. The first task starts the
 * thread; it ends when the stream is closed or garbage collected.
 *
 * <p>If a task fails, later tasks still run, even after an {@link Error} such as an {@link
 * OutOfMemoryError}. The first failure is kept: {@code isComplete} and {@code completion} report
 * it; {@code synchronize} and {@code Buffer.copyTo} report and clear it. After that, as on every
 * stream, the failures of communicators that use the stream are still reported until those
 * communicators are aborted or closed. A failure that is unreported when the stream is closed is
 * logged.
 */
public final class ReferenceStream implements StreamDriver {
  private final StreamContext context;
  private final String name;
  private final TaskQueue queue = new TaskQueue();
  // The trace that appended tasks belong to, or null; guarded by the queue.
  private TracedTasks appendTrace;
  // As thrown; the reporting thread wraps it.
  private volatile Throwable failure;
  // The failure of the worker's current task, even if it is not the first failure.
  private Throwable taskFailure;
  // The trace of the worker's current task, or null.
  private TracedTasks taskTrace;
  private volatile Thread worker;
  // Whether the wait of release timed out.
  private volatile boolean late;

  public ReferenceStream(int device, StreamContext context) {
    this.context = context;
    this.name = "nccl4j-stream-" + context.number() + "-device-" + device;
  }

  @Override
  public Runnable whenForgotten() {
    return queue::close;
  }

  /** Appends the execution of one operation or one group. */
  public void launch(List<RankExecution> executions) {
    append(
        () -> executions.forEach(RankExecution::takeTurn),
        idleStrategy -> note(RankExecution.run(executions, this::begins, idleStrategy)));
  }

  /** Appends any other action; returns the number of actions that were appended until now. */
  public long append(StreamTask.Action action) {
    return append(() -> {}, action);
  }

  /**
   * Appends an action.
   *
   * @param accepted runs first, and only if the stream accepts the action
   */
  private long append(Runnable accepted, StreamTask.Action action) {
    synchronized (queue) {
      if (queue.closed()) {
        throw new IllegalStateException("stream is closed: " + this);
      }
      if (worker == null) {
        worker = new Worker(queue, name).start();
      }
      accepted.run();
      if (appendTrace != null) {
        appendTrace.add();
      }
      return queue.add(new StreamTask(this, action, appendTrace));
    }
  }

  @Override
  public void trace(OperationTrace trace, Runnable launch) {
    TracedTasks tasks = new TracedTasks(trace);
    synchronized (queue) {
      appendTrace = tasks;
      try {
        launch.run();
      } finally {
        appendTrace = null;
      }
    }
    tasks.allEnqueued();
  }

  @Override
  public void follow(PendingLaunch launched) {
    queue.follow(launched);
  }

  /**
   * The stream's thread. No exception of a task ends it: otherwise threads that wait for the stream
   * could wait indefinitely.
   */
  private record Worker(TaskQueue queue, String name) implements Runnable {
    Thread start() {
      return Thread.ofPlatform()
          .daemon()
          .inheritInheritableThreadLocals(false)
          .name(name)
          .start(this);
    }

    @Override
    public void run() {
      IdleStrategy idleStrategy = new IdleStrategy(Thread.currentThread());
      boolean more = true;
      while (more) {
        more = runNext(idleStrategy);
      }
    }

    /** Runs one task; a separate method, so that no variable keeps the stream reachable. */
    private boolean runNext(IdleStrategy idleStrategy) {
      StreamTask task = queue.await();
      if (task != null) {
        task.stream().work(task, idleStrategy);
      }
      return task != null;
    }
  }

  private void work(StreamTask task, IdleStrategy idleStrategy) {
    taskTrace = task.traced();
    taskFailure = null;
    try {
      task.action().run(idleStrategy);
    } catch (Throwable e) {
      note(e);
    }
    endTrace();
    try {
      queue.reportRun(taskFailure != null);
    } catch (Throwable e) {
      note(e);
    }
    queue.finish();
  }

  private void endTrace() {
    if (taskTrace != null) {
      try {
        begins();
        taskTrace.end(taskFailure);
      } catch (Throwable e) {
        note(e);
      }
    }
  }

  /** Begins the trace of the current task, which has finished waiting for other work. */
  private void begins() {
    if (taskTrace != null) {
      taskTrace.begin();
    }
  }

  /** Records a failure of the current task; does nothing for null. */
  private void note(Throwable failed) {
    if (failed != null) {
      taskFailure = failed;
      synchronized (queue) {
        if (failure == null) {
          failure = failed;
        }
      }
    }
  }

  /** Returns a failure as an {@link NcclException}. */
  static NcclException typed(Throwable cause) {
    if (cause instanceof NcclException known) {
      return known;
    }
    NcclException typed =
        cause instanceof IllegalStateException
            ? Contract.get()
                .failure(
                    "stream",
                    NcclResult.INVALID_USAGE.code(),
                    "a buffer was closed while the stream used it",
                    String.valueOf(cause.getMessage()))
            : Contract.get()
                .failure("stream", NcclResult.INTERNAL_ERROR.code(), String.valueOf(cause), "");
    typed.initCause(cause);
    return typed;
  }

  /**
   * Returns a new exception of the same type, or null for null. Streams that wait for each other
   * share a failure; a caller that gets it twice can then add one as suppressed to the other, which
   * is impossible for the same object.
   */
  private static NcclException copyOf(Throwable failure) {
    if (failure == null) {
      return null;
    }
    NcclException first = typed(failure);
    return Contract.get().copyOf(first, Contract.get().details(first));
  }

  /** Waits without being interrupted; returns the number of tasks that have not finished. */
  private long awaitUninterrupted(long target, Duration timeout) {
    Deadline deadline = Deadline.after(timeout);
    return Interrupts.getUninterruptibly(() -> queue.awaitFinished(target, deadline));
  }

  @Override
  public void await(Duration timeout) {
    if (Thread.currentThread() == worker) {
      throw new IllegalStateException("the thread of " + this + " cannot wait for itself");
    }
    long unfinished;
    try {
      unfinished = queue.awaitFinished(queue.enqueued(), Deadline.after(timeout));
    } catch (InterruptedException e) {
      throw Interrupts.cancelled("synchronize");
    }
    NcclException failed;
    synchronized (queue) {
      failed = copyOf(failure);
      failure = null;
    }
    if (failed != null) {
      throw failed;
    }
    if (unfinished > 0) {
      throw context.timedOut("synchronize", timeout, unfinished + " pending on " + this);
    }
    context.throwFailure("synchronize");
  }

  @Override
  public void drain(Duration timeout) {
    long unfinished = awaitUninterrupted(queue.enqueued(), timeout);
    if (unfinished > 0) {
      throw context.timedOut("close", timeout, unfinished + " pending on " + this);
    }
  }

  @Override
  public boolean isComplete() {
    boolean finished = idle();
    NcclException failed = copyOf(failure);
    if (failed != null) {
      throw failed;
    }
    context.throwFailure("isComplete");
    return finished;
  }

  @Override
  public boolean idle() {
    return queue.idle();
  }

  @Override
  public CompletionStage<Void> completion() {
    CompletableFuture<Void> future = new CompletableFuture<>();
    EventRecord record = new EventRecord();
    long target = append(idleStrategy -> record.reach(failure));
    // Not completed by the worker: dependent actions may wait for this stream.
    Thread.ofVirtual().name("nccl4j-completion").start(() -> complete(future, target, record));
    return future.minimalCompletionStage();
  }

  private void complete(CompletableFuture<Void> future, long target, EventRecord record) {
    try {
      record.await();
      // The worker is about to finish the task that has reached the record.
      awaitUninterrupted(target, DEFAULT_TIMEOUT);
      NcclException failed = copyOf(record.failure());
      if (failed != null) {
        throw failed;
      }
      context.throwFailure("completion");
    } catch (Throwable failed) {
      future.completeExceptionally(failed);
      return;
    }
    future.complete(null);
  }

  @Override
  public void record(EventDriver event) {
    EventRecord record = new EventRecord();
    append(() -> ((ReferenceEvent) event).setRecord(record), idleStrategy -> record.reach(failure));
  }

  /** Appends a record that belongs to no event. */
  public EventRecord record() {
    EventRecord record = new EventRecord();
    append(idleStrategy -> record.reach(failure));
    return record;
  }

  @Override
  public void waitFor(EventDriver event) {
    EventRecord record = ((ReferenceEvent) event).record();
    if (record != null) {
      follow(record);
    }
  }

  /** Makes later work wait for a record, whose failure becomes a failure of this stream. */
  public void follow(EventRecord record) {
    append(
        idleStrategy -> {
          record.await();
          note(record.failure());
        });
  }

  @Override
  public void upload(MemorySegment source, BufferMemory target) {
    MemorySegment memory = target.pointer();
    synchronized (queue) {
      if (queue.idle()) {
        memory.copyFrom(source);
        return;
      }
    }
    // Shared: the worker reads and frees the memory that this thread writes.
    @SuppressWarnings("MustBeClosedChecker")
    Arena staging = Arena.ofShared();
    try {
      MemorySegment snapshot = staging.allocate(source.byteSize(), 64);
      snapshot.copyFrom(source);
      append(
          idleStrategy -> {
            try (staging) {
              memory.copyFrom(snapshot);
            }
          });
    } catch (RuntimeException | Error e) {
      staging.close();
      throw e;
    }
  }

  @Override
  public void download(BufferMemory source, MemorySegment target) {
    await(DEFAULT_TIMEOUT);
    target.copyFrom(source.pointer());
  }

  @Override
  public void copy(BufferMemory source, BufferMemory target) {
    MemorySegment from = source.pointer();
    MemorySegment to = target.pointer();
    append(idleStrategy -> to.copyFrom(from));
  }

  @Override
  public void fill(BufferMemory target, byte value) {
    MemorySegment memory = target.pointer();
    append(idleStrategy -> memory.fill(value));
  }

  @Override
  public void release() {
    queue.close();
    Thread thread = worker;
    if (thread == null || thread == Thread.currentThread()) {
      return;
    }
    try {
      drain(context.longestTimeout());
    } catch (NcclTimeoutException timeout) {
      // The thread ends once the pending work does.
      late = true;
      context.markStranded();
      throw timeout;
    }
    Throwable failed = failure;
    if (failed != null) {
      log().warn("{} was closed with an unreported failure", this, failed);
    }
  }

  @Override
  public boolean stuck() {
    return late && !idle();
  }

  /** Creates the logger on first use, since most programs never need it. */
  private static Logger log() {
    return Loggers.of(ReferenceStream.class);
  }

  @Override
  public String toString() {
    return "Stream[" + name + (queue.closed() ? ", closed]" : "]");
  }
}
