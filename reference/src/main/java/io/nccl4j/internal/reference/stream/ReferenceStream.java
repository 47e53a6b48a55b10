package io.nccl4j.internal.reference.stream;

import io.nccl4j.NcclException;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclResult;
import io.nccl4j.NcclTimeoutException;
import io.nccl4j.Operation;
import io.nccl4j.internal.reference.rank.HostedRank;
import io.nccl4j.internal.reference.rank.IdleStrategy;
import io.nccl4j.internal.reference.rank.RankExecution;
import io.nccl4j.internal.reference.reduce.ReductionOp;
import io.nccl4j.internal.util.Deadline;
import io.nccl4j.internal.util.Interrupts;
import io.nccl4j.internal.util.Loggers;
import io.nccl4j.spi.BufferMemory;
import io.nccl4j.spi.Contract;
import io.nccl4j.spi.EventDriver;
import io.nccl4j.spi.OperationTrace;
import io.nccl4j.spi.StreamContext;
import io.nccl4j.spi.StreamDriver;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.BooleanSupplier;
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
  // Held while appending to the queue, and by an upload that bypasses it.
  private final Object producers = new Object();
  // The trace that appended tasks belong to, or null; guarded by producers.
  private TracedTasks appendTrace;
  // Threads wait on this for the worker; wakeAt is the least finished count that any waits for.
  private final Object progress = new Object();
  private volatile long wakeAt = Long.MAX_VALUE;
  // As thrown: the worker may lack memory to wrap it, so the reporting thread does.
  private volatile Throwable failure;
  // The failure of the worker's current task, even if it is not the first failure.
  private Throwable taskFailure;
  // The trace of the worker's current task, or null.
  private TracedTasks taskTrace;
  private volatile Thread worker;
  // Whether the wait of release timed out.
  private volatile boolean late;
  private final Runnable begins = this::begins;
  private final BooleanSupplier hasMore = queue::hasMore;

  public ReferenceStream(int device, StreamContext context) {
    this.context = context;
    this.name = "nccl4j-stream-" + context.number() + "-device-" + device;
  }

  @Override
  public Runnable whenForgotten() {
    return queue::close;
  }

  /** Appends one operation of a communicator. */
  public void launch(
      HostedRank hostedRank,
      Operation operation,
      BufferMemory send,
      BufferMemory recv,
      long count,
      ReductionOp operator,
      int peer) {
    synchronized (producers) {
      StreamTask task = claim();
      task.call.set(operation, send, recv, count, operator, peer);
      // An Error may have left the action of a task that was never appended.
      task.action = null;
      task.hostedRank = hostedRank;
      task.turnNumber = hostedRank.takeTurnNumber();
      queue.publish();
    }
    queue.wake();
  }

  /** Appends any other action. */
  public void append(StreamTask.Action action) {
    append(() -> {}, action);
  }

  /**
   * Appends an action.
   *
   * @param accepted runs first, and only if the stream accepts the action
   */
  public void append(Runnable accepted, StreamTask.Action action) {
    synchronized (producers) {
      StreamTask task = claim();
      accepted.run();
      task.action = action;
      queue.publish();
    }
    queue.wake();
  }

  private StreamTask claim() {
    if (queue.closed()) {
      throw new IllegalStateException("stream is closed: " + this);
    }
    if (worker == null) {
      Worker newWorker = new Worker(queue, name);
      newWorker.thread.start();
      // Set after the start: the stream must not wait for a thread that failed to start.
      worker = newWorker.thread;
    }
    StreamTask task = queue.claim();
    task.stream = this;
    task.traced = appendTrace;
    if (appendTrace != null) {
      appendTrace.add();
    }
    return task;
  }

  @Override
  public void trace(OperationTrace trace, Runnable launch) {
    TracedTasks tasks = new TracedTasks(trace);
    synchronized (producers) {
      appendTrace = tasks;
      try {
        launch.run();
      } finally {
        appendTrace = null;
      }
    }
    tasks.allEnqueued();
  }

  /**
   * The stream's thread. No exception of a task ends it, and it allocates nothing between tasks:
   * otherwise threads that wait for the stream could wait indefinitely. It references the stream
   * only through pending tasks, so an unreachable stream can be collected once its work is done.
   */
  private static final class Worker implements Runnable {
    private final TaskQueue queue;
    private final Thread thread;
    // Allocated before the thread starts, so that running the first task needs no memory.
    private final IdleStrategy idleStrategy;
    private final RankExecution[] single = new RankExecution[1];

    Worker(TaskQueue queue, String name) {
      this.queue = queue;
      this.thread =
          Thread.ofPlatform()
              .daemon()
              .inheritInheritableThreadLocals(false)
              .name(name)
              .unstarted(this);
      this.idleStrategy = new IdleStrategy(thread);
    }

    @Override
    public void run() {
      for (StreamTask task = queue.await(); task != null; task = queue.await()) {
        task.stream.work(task, idleStrategy, single);
      }
    }
  }

  private void work(StreamTask task, IdleStrategy idleStrategy, RankExecution[] single) {
    taskTrace = task.traced;
    taskFailure = null;
    try {
      if (task.action != null) {
        task.action.run(idleStrategy);
      } else {
        note(
            RankExecution.runOnly(
                task.hostedRank,
                task.turnNumber,
                task.call,
                hasMore,
                begins,
                idleStrategy,
                single));
      }
    } catch (Throwable e) {
      note(e);
    }
    endTrace();
    task.clear();
    queue.finish();
    signalProgress();
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
  public void begins() {
    if (taskTrace != null) {
      taskTrace.begin();
    }
  }

  private void signalProgress() {
    if (queue.finished() >= wakeAt) {
      synchronized (progress) {
        wakeAt = Long.MAX_VALUE;
        progress.notifyAll();
      }
    }
  }

  /** Records a failure of the current task; does nothing for null. */
  public void note(Throwable failed) {
    if (failed != null) {
      taskFailure = failed;
      if (failure == null) {
        failure = failed;
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
            ? new NcclInvalidUsageException(
                "stream",
                NcclResult.INVALID_USAGE.code(),
                "a buffer was closed while the stream used it",
                String.valueOf(cause.getMessage()))
            : new NcclException(
                "stream", NcclResult.INTERNAL_ERROR.code(), String.valueOf(cause), "");
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

  /** Waits until the finished count reaches a target; returns whether it has. */
  private boolean awaitFinished(long target, Deadline deadline) throws InterruptedException {
    if (queue.finished() >= target) {
      return true;
    }
    // An Error may have prevented the appending thread from waking the worker.
    queue.wake();
    synchronized (progress) {
      while (queue.finished() < target && !deadline.passed()) {
        wakeAt = Math.min(wakeAt, target);
        // The worker may have reached the target before it could see wakeAt.
        if (queue.finished() < target) {
          progress.wait(deadline.remainingMillis());
        }
      }
    }
    return queue.finished() >= target;
  }

  /** Like {@code awaitFinished}, but defers interrupts. */
  private boolean awaitUninterrupted(long target, Deadline deadline) {
    return Interrupts.getUninterruptibly(() -> awaitFinished(target, deadline));
  }

  @Override
  public void await(Duration timeout) {
    if (Thread.currentThread() == worker) {
      throw new IllegalStateException("the thread of " + this + " cannot wait for itself");
    }
    long target = queue.enqueued();
    boolean finished;
    try {
      finished = awaitFinished(target, Deadline.after(timeout));
    } catch (InterruptedException e) {
      throw Interrupts.cancelled("synchronize");
    }
    NcclException failed;
    synchronized (progress) {
      failed = copyOf(failure);
      failure = null;
    }
    if (failed != null) {
      throw failed;
    }
    if (!finished) {
      throw context.timedOut(
          "synchronize", timeout, target - queue.finished() + " pending on " + this);
    }
    context.throwFailure("synchronize");
  }

  @Override
  public void drain(Duration timeout) {
    long target = queue.enqueued();
    if (!awaitUninterrupted(target, Deadline.after(timeout))) {
      throw context.timedOut("close", timeout, target - queue.finished() + " pending on " + this);
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
    return queue.finished() == queue.enqueued();
  }

  @Override
  public CompletionStage<Void> completion() {
    CompletableFuture<Void> future = new CompletableFuture<>();
    EventRecord record = new EventRecord();
    long target;
    synchronized (producers) {
      append(idleStrategy -> record.reach(failure));
      target = queue.enqueued();
    }
    // Not completed by the worker: dependent actions may wait for this stream. Started here, since
    // the worker may lack memory for a thread.
    Thread.ofVirtual().name("nccl4j-completion").start(() -> complete(future, target, record));
    return future.minimalCompletionStage();
  }

  private void complete(CompletableFuture<Void> future, long target, EventRecord record) {
    try {
      record.await();
      // The worker is about to finish the task that has reached the record.
      awaitUninterrupted(target, Deadline.after(DEFAULT_TIMEOUT));
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
    EventRecord record;
    synchronized (producers) {
      record = ((ReferenceEvent) event).newRecord();
      append(idleStrategy -> record.reach(failure));
    }
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
    synchronized (producers) {
      if (queue.finished() == queue.enqueued()) {
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
    synchronized (producers) {
      queue.close();
    }
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
