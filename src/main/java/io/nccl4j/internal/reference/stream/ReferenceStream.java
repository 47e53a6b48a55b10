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
import io.nccl4j.internal.util.MemoryShortage;
import io.nccl4j.spi.BufferMemory;
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
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * A stream of the reference backend: a queue with one daemon thread, which is started by the first
 * work and ends when the stream is closed, or forgotten and garbage.
 *
 * <p>When work fails, the work behind it still runs, also after an {@link Error} such as an {@link
 * OutOfMemoryError}. The first failure is kept: {@code isComplete} and {@code completion} report
 * it, and so do {@code synchronize} and {@code Buffer.copyTo}, which also clear it. After that the
 * stream still tells, as every stream does, what is wrong with the communicators that it carries,
 * until they are aborted or closed. A failure that nobody has been told when the stream is closed
 * is logged.
 */
public final class ReferenceStream implements StreamDriver {
  private final StreamContext users;
  private final String name;
  private final TaskQueue queue = new TaskQueue();
  // Held by whoever appends to the queue, and by an upload that bypasses it.
  private final Object producers = new Object();
  // What records the tasks that are appended; under the producers' lock.
  private TracedTasks recording;
  // Where others wait for the worker; wakeAt is how much must be finished for any of them.
  private final Object progress = new Object();
  private volatile long wakeAt = Long.MAX_VALUE;
  // As it was thrown: the worker may have no memory for another exception, who asks makes that.
  private volatile Throwable failure;
  // What the worker's task has failed with, whether that is the first failure or not.
  private Throwable failureOfTask;
  // What records the worker's task, or null.
  private TracedTasks recorded;
  private volatile Thread worker;
  private final Runnable begins = this::begins;
  private final BooleanSupplier hasMore = queue::hasMore;

  public ReferenceStream(int device, StreamContext users) {
    this.users = users;
    this.name = "nccl4j-stream-" + users.number() + "-device-" + device;
  }

  @Override
  public Runnable whenForgotten() {
    return queue::close;
  }

  /** Appends one operation of a communicator. */
  public void launch(
      HostedRank member,
      Operation operation,
      BufferMemory send,
      BufferMemory recv,
      long count,
      ReductionOp operator,
      int peer) {
    synchronized (producers) {
      StreamTask task = claim();
      task.call.set(operation, send, recv, count, operator, peer);
      // That of an action which an Error has kept from being appended.
      task.action = null;
      task.hostedRank = member;
      task.turnNumber = member.takeTurnNumber();
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
   * @param accepted runs first, and only if the stream takes the action
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
      Worker made = new Worker(queue, name);
      made.thread.start();
      // Known only when it runs, or a stream would wait indefinitely for a thread that never
      // started.
      worker = made.thread;
    }
    StreamTask task = queue.claim();
    task.stream = this;
    task.recorded = recording;
    if (recording != null) {
      recording.add();
    }
    return task;
  }

  @Override
  public void trace(OperationTrace trace, Runnable launch) {
    TracedTasks tasks = new TracedTasks(trace);
    synchronized (producers) {
      recording = tasks;
      try {
        launch.run();
      } finally {
        recording = null;
      }
    }
    tasks.allThere();
  }

  /**
   * The stream's thread. Nothing that a task throws ends it, and between two tasks it allocates
   * nothing: those that wait for the stream would otherwise wait in vain. It knows the stream only
   * by its pending tasks, so that a forgotten stream is garbage once its work is done.
   */
  private static final class Worker implements Runnable {
    private final TaskQueue queue;
    private final Thread thread;
    // Made before the thread starts, so that it can begin whether there is memory or not.
    private final IdleStrategy idleStrategy;
    private final RankExecution[] single = new RankExecution[1];

    Worker(TaskQueue queue, String name) {
      this.queue = queue;
      this.thread = Thread.ofPlatform().daemon().name(name).unstarted(this);
      this.idleStrategy = new IdleStrategy(thread);
    }

    @Override
    public void run() {
      for (StreamTask task = queue.await(); task != null; task = queue.await()) {
        task.stream.work(task, idleStrategy, single);
      }
    }
  }

  private void work(StreamTask task, IdleStrategy patience, RankExecution[] single) {
    recorded = task.recorded;
    failureOfTask = null;
    try {
      if (task.action != null) {
        task.action.run(patience);
      } else {
        note(
            RankExecution.runOnly(
                task.hostedRank, task.turnNumber, task.call, hasMore, begins, patience, single));
      }
    } catch (Throwable e) {
      note(e);
    }
    endRecorded();
    task.clear();
    queue.finish();
    signalProgress();
  }

  private void endRecorded() {
    if (recorded != null) {
      try {
        begins();
        recorded.end(failureOfTask);
      } catch (Throwable e) {
        note(e);
      }
    }
  }

  /** Learns from the worker's task that it has waited for what is not its own work. */
  public void begins() {
    if (recorded != null) {
      recorded.begin();
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

  /** Keeps what has failed, for those that ask; null is nothing. */
  public void note(Throwable failed) {
    if (failed != null) {
      failureOfTask = failed;
      if (failure == null) {
        failure = failed;
      }
    }
  }

  /** Returns what a failure is reported as. */
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
   * Returns a new exception of the same kind, or null for null: streams that wait for each other
   * have one failure, and a caller that meets it twice could not suppress one in the other if they
   * were the same object.
   */
  private static NcclException copyOf(Throwable failure) {
    if (failure == null) {
      return null;
    }
    NcclException first = typed(failure);
    return NcclException.copyOf(first, first.details());
  }

  /** Waits until so much is finished; returns whether it is. */
  private boolean awaitFinished(long target, Deadline deadline) throws InterruptedException {
    if (queue.finished() >= target) {
      return true;
    }
    // An Error may have kept the thread that appended the work from waking the worker.
    queue.wake();
    synchronized (progress) {
      while (queue.finished() < target && !deadline.passed()) {
        wakeAt = Math.min(wakeAt, target);
        // The worker may have finished it before it could see wakeAt.
        if (queue.finished() < target) {
          progress.wait(deadline.remainingMillis());
        }
      }
    }
    return queue.finished() >= target;
  }

  /** Does what {@code awaitFinished} does; an interrupt is kept for later. */
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
      throw users.timedOut(
          "synchronize", timeout, target - queue.finished() + " pending on " + this);
    }
    users.throwFailure("synchronize");
  }

  @Override
  public void drain(Duration timeout) {
    long target = queue.enqueued();
    if (!awaitUninterrupted(target, Deadline.after(timeout))) {
      throw users.timedOut("close", timeout, target - queue.finished() + " pending on " + this);
    }
  }

  @Override
  public boolean isComplete() {
    boolean finished = idle();
    NcclException failed = copyOf(failure);
    if (failed != null) {
      throw failed;
    }
    users.throwFailure("isComplete");
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
      append(patience -> record.reach(failure));
      target = queue.enqueued();
    }
    // Not in the worker: what depends on it may wait for this very stream. And now, since the
    // worker may have no memory for a thread.
    Thread.ofVirtual().name("nccl4j-completion").start(() -> complete(future, target, record));
    return future.minimalCompletionStage();
  }

  private void complete(CompletableFuture<Void> future, long target, EventRecord mark) {
    try {
      mark.await();
      // The worker is about to finish the task that has reached the mark.
      awaitUninterrupted(target, Deadline.after(DEFAULT_TIMEOUT));
      NcclException failed = copyOf(mark.failure());
      if (failed != null) {
        throw failed;
      }
      users.throwFailure("completion");
    } catch (Throwable failed) {
      MemoryShortage.fail(future, failed);
      return;
    }
    future.complete(null);
  }

  @Override
  public void record(EventDriver event) {
    EventRecord record;
    synchronized (producers) {
      record = ((ReferenceEvent) event).newRecord();
      append(patience -> record.reach(failure));
    }
  }

  /** Appends a mark that belongs to no event. */
  public EventRecord record() {
    EventRecord record = new EventRecord();
    append(patience -> record.reach(failure));
    return record;
  }

  @Override
  public void waitFor(EventDriver event) {
    EventRecord record = ((ReferenceEvent) event).record();
    if (record != null) {
      follow(record);
    }
  }

  /** Makes later work wait for a mark; what had failed before it has failed here too. */
  public void follow(EventRecord mark) {
    append(
        patience -> {
          mark.await();
          note(mark.failure());
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
    // Shared, for the worker reads and frees what this thread writes.
    @SuppressWarnings("MustBeClosedChecker")
    Arena staging = Arena.ofShared();
    try {
      MemorySegment snapshot = staging.allocate(source.byteSize(), 64);
      snapshot.copyFrom(source);
      append(
          patience -> {
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
    append(patience -> to.copyFrom(from));
  }

  @Override
  public void fill(BufferMemory target, byte value) {
    MemorySegment memory = target.pointer();
    append(patience -> memory.fill(value));
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
      drain(users.longestTimeout());
    } catch (NcclTimeoutException stuck) {
      // The thread ends by itself when the work does.
      users.markStranded();
      throw stuck;
    }
    Throwable failed = failure;
    if (failed != null) {
      log().warn("{} was closed with a failure that nobody had asked for", this, failed);
    }
  }

  /** Finds the logger only when there is something to say, since most programs never need it. */
  private static Logger log() {
    return LogManager.getLogger(ReferenceStream.class);
  }

  @Override
  public String toString() {
    return "Stream[" + name + (queue.closed() ? ", closed]" : "]");
  }
}
