package io.nccl4j.training;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.Event;
import io.nccl4j.Group;
import io.nccl4j.Stream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.NullMarked;
import org.jspecify.annotations.Nullable;

/**
 * Reduces gradients in buckets while backward still runs: each bucket is reduced on the reducer's
 * own stream as soon as backward has computed the last of its gradients.
 *
 * <p>A step consists of backward, with {@link #markReady} for each parameter once the computation
 * of its gradient has been enqueued; {@link #finish}; and the optimiser. A gradient belongs to the
 * reducer from {@code markReady} until {@code finish}, and to the caller afterwards, who also
 * zeroes it. Buckets are launched in the same order on every rank, independent of the order in
 * which gradients become ready: a bucket waits until all earlier ones have been launched.
 *
 * <p>Every rank creates its reducer with the same parameters in the same order, and runs the same
 * steps. Creation compares the registered parameters of all ranks; if they differ, every rank
 * throws an exception that names the ranks and the difference. Creation also copies rank 0's
 * parameters to all ranks.
 *
 * <p>Gradients may be computed on several streams. The stream passed to {@code finish} waits for
 * the reduction; the caller makes the other streams wait for it before they access gradients again.
 *
 * <p>Threading: one thread at a time may use a reducer, not necessarily always the same one, so an
 * autograd engine's thread may mark gradients while the thread that called backward waits for it. A
 * concurrent call by a second thread throws. From a step's first mark until {@code finish} nothing
 * else may use the communicator, since all ranks must enqueue operations in the same order. Only
 * creating and closing a reducer wait for the device.
 *
 * <p>Ownership: the caller owns the communicator, the parameters and the streams passed in, and
 * keeps them open until the reducer is closed. The reducer owns the buckets, the events and the
 * {@link #stream communication stream}; close it before the communicator.
 *
 * <p>Once launching a bucket has failed, this rank is out of step with the others: every later call
 * except {@link #close} throws an exception with that cause.
 */
@NullMarked
public abstract sealed class Reducer implements AutoCloseable
    permits GradientReducer, ShardedReducer {
  private static final int MAX_NAMES_SHOWN = 8;

  /**
   * Added to the communicator's timeout, so that the collective times out first and names ranks.
   */
  private static final Duration GRACE = Duration.ofSeconds(5);

  private final Communicator communicator;
  private final ReducerConfig config;
  private final OwnedResources resources = new OwnedResources();
  private final Stream stream;
  private final Event handOver;
  private final List<Parameter> parameters;
  private final BucketBuffer[] buckets;
  private final Map<Parameter, BucketEntry> entries = new HashMap<>();
  private final AtomicReference<@Nullable Thread> user = new AtomicReference<>();
  private long step = 1;
  private int marked;
  private int bucketsLaunched;
  private volatile boolean paused;
  private @Nullable Throwable failure;
  private boolean closed;

  /** Checks that all ranks registered the same parameters, and allocates the buckets. */
  Reducer(
      Communicator communicator,
      List<Parameter> parameters,
      ReducerConfig config,
      int shards,
      Stream ready) {
    Objects.requireNonNull(communicator, "communicator");
    Objects.requireNonNull(parameters, "parameters");
    Objects.requireNonNull(config, "config");
    this.communicator = communicator;
    this.config = config;
    checkNoGroup("creating a reducer");
    checkUsable(ready, "a reducer");
    this.parameters = ParameterChecks.checked(parameters, communicator);
    try {
      this.stream = resources.add(communicator.newStream(), Stream::close);
      this.handOver = resources.add(communicator.newEvent(), Event::close);
      ParameterConsistency.check(communicator, stream, statement());
      this.buckets =
          BucketPlan.divide(this.parameters, config, shards).stream()
              .map(bucket -> new BucketBuffer(bucket, communicator, resources))
              .toArray(BucketBuffer[]::new);
      for (BucketBuffer bucket : buckets) {
        for (BucketEntry entry : bucket.entries()) {
          entries.put(entry.parameter(), entry);
        }
      }
    } catch (Throwable cause) {
      resources.closeAfter(cause);
      throw cause;
    }
  }

  /** Waits for a stream of collectives, long enough for them to time out and name missing ranks. */
  static void await(Communicator communicator, Stream stream) {
    stream.synchronize(communicator.timeout().plus(GRACE));
  }

  private List<String> statement() {
    List<String> lines = new ArrayList<>();
    lines.add("a " + getClass().getSimpleName() + " with " + config);
    for (Parameter parameter : parameters) {
      lines.add("parameter " + (lines.size() - 1) + " " + parameter);
    }
    return lines;
  }

  /** Broadcasts rank 0's parameters; if that fails, releases all resources. */
  final void start(Stream ready) {
    try {
      follow(ready);
      Group.run(() -> parameters.forEach(each -> communicator.broadcast(each.value(), 0, stream)));
      for (BucketBuffer bucket : buckets) {
        bucket.clear(stream);
      }
      prepare();
      // Any stream may compute the first gradient, so wait here.
      await(communicator, stream);
    } catch (Throwable cause) {
      resources.closeAfter(cause);
      throw cause;
    }
  }

  /** Enqueues further work on the parameters before the first step. */
  void prepare() {
    // Nothing by default.
  }

  /**
   * Marks a gradient as ready once a stream has completed the work enqueued on it so far, and
   * launches every bucket that is complete and next in order.
   *
   * @param parameter a parameter of this reducer, not yet marked in this step
   * @param source the stream that computes the gradient, on this rank's device; preferably always
   *     the same object, since each distinct stream of a bucket costs an event
   * @throws IllegalArgumentException if the parameter is not this reducer's, or the stream is on
   *     another device
   * @throws IllegalStateException if the parameter is already marked, the reducer or the stream is
   *     closed, another thread is using the reducer, or this thread has a group open
   * @throws io.nccl4j.NcclException if launching a bucket failed
   * @throws io.nccl4j.CudaException if launching a bucket failed
   */
  public final void markReady(Parameter parameter, Stream source) {
    enter("markReady");
    try {
      BucketEntry entry = entry(parameter);
      checkUsable(source, "markReady");
      checkParametersGathered();
      if (paused) {
        entry.accumulate(source);
      } else {
        checkUnmarked(entry);
        entry.markReady();
        take(entry, source);
      }
    } finally {
      leave();
    }
  }

  /**
   * Calls {@link #markReady} for all parameters, for a backward that does not report individual
   * gradients.
   *
   * @param source the stream that computes the gradients, on this rank's device
   * @throws IllegalArgumentException as {@code markReady} does
   * @throws IllegalStateException as {@code markReady} does
   * @throws io.nccl4j.NcclException as {@code markReady} does
   * @throws io.nccl4j.CudaException as {@code markReady} does
   */
  public final void allReady(Stream source) {
    for (Parameter parameter : parameters.reversed()) {
      markReady(parameter, source);
    }
  }

  /**
   * Adds a gradient to its bucket, and launches all buckets that are complete and next in order.
   */
  private void take(BucketEntry entry, Stream source) {
    try {
      marked++;
      entry.buffer().take(source);
      while (bucketsLaunched < buckets.length && buckets[bucketsLaunched].complete()) {
        BucketBuffer next = buckets[bucketsLaunched];
        next.gather(stream);
        reduce(next);
        bucketsLaunched++;
      }
    } catch (RuntimeException | Error cause) {
      fail(cause);
      throw cause;
    }
  }

  /** Enqueues the reduction of a bucket on the communication stream. */
  abstract void reduce(BucketBuffer bucket);

  /**
   * Ends backward: work enqueued on a stream from now on waits until all buckets are reduced. The
   * host does not wait. The next mark begins the next step.
   *
   * <p>If parameters are unmarked, this method throws and has no effect, so that they can still be
   * marked. If {@link ReducerConfig#findUnusedParameters} is set, unmarked parameters contribute
   * zeros instead, or the accumulated gradient if they were marked within {@link #noSync} since the
   * last {@code finish}. A parameter that no rank has used gets a zero gradient.
   *
   * @param reader the stream that the optimiser uses, on this rank's device
   * @throws IllegalArgumentException if the stream is on another device
   * @throws IllegalStateException if parameters are unmarked and {@code findUnusedParameters} is
   *     not set, the reducer or the stream is closed, another thread is using the reducer, this
   *     thread has a group open, or the call is within {@code noSync}
   * @throws io.nccl4j.NcclException if launching a bucket failed
   * @throws io.nccl4j.CudaException if launching a bucket failed
   */
  public final void finish(Stream reader) {
    enter("finish");
    try {
      checkUsable(reader, "finish");
      checkParametersGathered();
      if (paused) {
        throw new IllegalStateException(
            "finish was called within noSync; call it after noSync has returned");
      }
      if (marked < parameters.size()) {
        contributeUnused(reader);
      }
      handOver(reader);
      beginStep();
    } finally {
      leave();
    }
  }

  private void contributeUnused(Stream reader) {
    if (!config.findUnusedParameters()) {
      throw new IllegalStateException(
          ("in step %d %d of %d parameters are not marked ready: %s; mark each, or allow unused"
                  + " ones with ReducerConfig.withFindUnusedParameters(true)")
              .formatted(step, parameters.size() - marked, parameters.size(), unmarked()));
    }
    for (BucketBuffer bucket : buckets) {
      for (BucketEntry entry : bucket.entries()) {
        if (!entry.marked()) {
          take(entry, entry.markUnused(reader));
        }
      }
    }
  }

  private String unmarked() {
    List<String> names =
        parameters.stream()
            .filter(parameter -> !entry(parameter).marked())
            .map(parameter -> "'" + parameter.name() + "'")
            .toList();
    String shown = String.join(", ", names.subList(0, Math.min(names.size(), MAX_NAMES_SHOWN)));
    return names.size() <= MAX_NAMES_SHOWN
        ? shown
        : shown + " and " + (names.size() - MAX_NAMES_SHOWN) + " more";
  }

  private void beginStep() {
    for (BucketBuffer bucket : buckets) {
      bucket.beginStep();
    }
    marked = 0;
    bucketsLaunched = 0;
    step++;
    stepFinished();
  }

  /** Called at the end of {@link #finish}, when all reductions have been enqueued. */
  void stepFinished() {
    // Nothing by default.
  }

  /** Throws if the parameters updated by the previous step have not been gathered. */
  void checkParametersGathered() {
    // Nothing by default.
  }

  /**
   * Runs a backward without reduction, for gradient accumulation: use it for all but the last
   * micro-batch of a step. The backward accumulates the gradients itself. Within it, {@link
   * #markReady} is accepted and launches nothing, so hooks need not distinguish; it may be called
   * from other threads, but not after this method has returned.
   *
   * @param backward runs the backward
   * @throws IllegalStateException if parameters are already marked in this step, the reducer is
   *     closed, another thread is using it, or this thread has a group open
   */
  public final void noSync(Runnable backward) {
    Objects.requireNonNull(backward, "backward");
    boolean before = pause();
    try {
      backward.run();
    } finally {
      paused = before;
    }
  }

  private boolean pause() {
    enter("noSync");
    try {
      checkParametersGathered();
      if (marked > 0) {
        throw new IllegalStateException(
            "noSync must precede the marks of a step; in step %d %d parameters are already marked"
                .formatted(step, marked));
      }
      boolean before = paused;
      paused = true;
      return before;
    } finally {
      leave();
    }
  }

  /**
   * {@return the buffer that backward writes the gradient of a parameter to: a slice of a bucket,
   * or the buffer it was registered with} A slice of a bucket is initially zero; the caller zeroes
   * it after each step.
   *
   * @param parameter a parameter of this reducer
   * @throws IllegalArgumentException if the parameter is not this reducer's
   */
  public final Buffer gradient(Parameter parameter) {
    return entry(parameter).gradient();
  }

  /** {@return the parameters, in the order of registration} */
  public final List<Parameter> parameters() {
    return parameters;
  }

  /** {@return the buckets, in launch order} */
  public final List<Bucket> buckets() {
    return Arrays.stream(buckets).map(BucketBuffer::bucket).toList();
  }

  /** {@return the number of buckets launched so far in this step} */
  public final int bucketsLaunched() {
    return bucketsLaunched;
  }

  /** {@return the stream on which buckets are reduced, to wait for or to trace; do not close it} */
  public final Stream stream() {
    return stream;
  }

  /** {@return the communicator that reduces the buckets} */
  public final Communicator communicator() {
    return communicator;
  }

  /** Makes the communication stream wait for the work enqueued on another stream. */
  final void follow(Stream other) {
    other.record(handOver);
    stream.waitFor(handOver);
  }

  /** Makes another stream wait for the work enqueued on the communication stream. */
  final void handOver(Stream other) {
    stream.record(handOver);
    other.waitFor(handOver);
  }

  final BucketBuffer[] bucketBuffers() {
    return buckets;
  }

  final OwnedResources resources() {
    return resources;
  }

  /** Records why this rank is out of step with the others. */
  final void fail(Throwable cause) {
    failure = cause;
  }

  /** Acquires the reducer for this thread, or throws if it is in use, closed or failed. */
  final void enter(String call) {
    Thread current = Thread.currentThread();
    Thread other = user.compareAndExchange(null, current);
    if (other != null) {
      throw new IllegalStateException(
          "%s was called by %s while %s uses the reducer; only one thread at a time may use it: %s"
              .formatted(call, current, other, this));
    }
    boolean entered = false;
    try {
      checkOpen();
      checkNoGroup(call);
      entered = true;
    } finally {
      if (!entered) {
        leave();
      }
    }
  }

  final void leave() {
    user.set(null);
  }

  private void checkOpen() {
    if (closed) {
      throw new IllegalStateException("reducer is closed: " + this);
    }
    if (failure != null) {
      throw new IllegalStateException(
          "reducer failed in step %d and is no longer in step with the other ranks: %s"
              .formatted(step, this),
          failure);
    }
  }

  private static void checkNoGroup(String call) {
    if (Group.running()) {
      throw new IllegalStateException(
          call + " is not possible within Group.run, which would defer its operations");
    }
  }

  private BucketEntry entry(Parameter parameter) {
    BucketEntry entry = entries.get(Objects.requireNonNull(parameter, "parameter"));
    if (entry == null) {
      throw new IllegalArgumentException(
          "parameter %s is not one of this reducer's; pass a parameter it was created with: %s"
              .formatted(parameter, this));
    }
    return entry;
  }

  private void checkUnmarked(BucketEntry entry) {
    if (entry.marked()) {
      throw new IllegalStateException(
          ("parameter '%s' is marked ready twice in step %d; mark it once between two calls of"
                  + " finish")
              .formatted(entry.parameter().name(), step));
    }
  }

  final void checkUsable(Stream other, String call) {
    Objects.requireNonNull(other, "stream");
    if (!other.isOpen()) {
      throw new IllegalStateException("stream of " + call + " is closed: " + other);
    }
    if (other.deviceType() != communicator.backend().deviceType()
        || other.device() != communicator.device()) {
      throw new IllegalArgumentException(
          "stream of %s is %s; it must be of this rank's device, %s device %d"
              .formatted(call, other, communicator.backend().deviceType(), communicator.device()));
    }
  }

  /**
   * Waits for launched reductions, for at most the communicator's timeout plus 5 seconds, and
   * releases the reducer's resources. The caller must have synchronized the streams whose work uses
   * gradients stored in buckets. Idempotent. If the wait fails because a rank is missing, memory
   * still in use is freed when the communicator is closed or aborted.
   *
   * @throws IllegalStateException if another thread is using the reducer, which stays open
   * @throws io.nccl4j.NcclException if a reduction failed or the wait timed out
   * @throws io.nccl4j.CudaException if work on the device failed
   */
  @Override
  public final void close() {
    if (!markClosed()) {
      return;
    }
    try {
      if (communicator.isOpen()) {
        await(communicator, stream);
      }
    } catch (Throwable cause) {
      resources.closeAfter(cause);
      throw cause;
    }
    resources.close();
  }

  /** Returns true for the first caller, which must release the resources. */
  private boolean markClosed() {
    Thread other = user.compareAndExchange(null, Thread.currentThread());
    if (other != null) {
      throw new IllegalStateException(
          "close was called while " + other + " uses the reducer: " + this);
    }
    boolean first = !closed;
    closed = true;
    leave();
    return first;
  }

  @Override
  public final String toString() {
    return "%s[%d parameters in %d buckets, %s]"
        .formatted(getClass().getSimpleName(), parameters.size(), buckets.length, communicator);
  }
}
