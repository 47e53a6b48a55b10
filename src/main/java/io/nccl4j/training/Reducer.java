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

/**
 * What both reducers have in common: gradients lie in buckets, and each bucket is reduced on a
 * stream of the reducer's own as soon as backward has computed the last of its gradients.
 *
 * <p>A step is: backward, with {@link #markReady} for each parameter when the stream that computes
 * its gradient has got that work; {@link #finish}; the optimiser. From its mark until {@code
 * finish} a gradient belongs to the reducer; after it, to the caller, who also zeroes it. Buckets
 * are launched in the same order on every rank, whatever order gradients become ready in: one waits
 * until those before it have been launched.
 *
 * <p>Every rank makes a reducer of the same parameters in the same order, and takes the same steps.
 * Making one waits until all ranks have said what they registered; if they differ, each is told
 * which rank does and how. Parameters then have rank 0's values everywhere.
 *
 * <p>Gradients may come from several streams. The caller orders those other than the one that
 * {@code finish} was given after it, before they touch gradients again.
 *
 * <p>Threading: one thread at a time may use a reducer, and it need not always be the same one, so
 * the marks may come from the thread of an autograd engine while the one that called backward waits
 * for it. A second thread that meets the first is refused. From a step's first mark until {@code
 * finish} nobody else uses the communicator, since its operations must come in one order on all
 * ranks. No call waits for the device, but for making and closing.
 *
 * <p>Ownership: communicator, parameters and the streams that are passed in stay the caller's, who
 * keeps them open until the reducer is closed. Buckets, events and the {@link #stream communication
 * stream} are the reducer's, which is closed before the communicator.
 *
 * <p>Once launching a bucket has failed, this rank is no longer in step with the others: every
 * later call but {@link #close} is refused with that cause.
 */
public abstract sealed class Reducer implements AutoCloseable
    permits GradientReducer, ShardedReducer {
  private static final int MOST_NAMES_TOLD = 8;

  /** So much longer we wait than a collective may, which names the ranks that it waits for. */
  private static final Duration GRACE = Duration.ofSeconds(5);

  private final Communicator communicator;
  private final ReducerConfig config;
  private final OwnedResources resources = new OwnedResources();
  private final Stream stream;
  private final Event handOver;
  private final List<Parameter> parameters;
  private final BucketBuffer[] buckets;
  private final Map<Parameter, BucketEntry> entries = new HashMap<>();
  private final AtomicReference<Thread> user = new AtomicReference<>();
  private long step = 1;
  private int marked;
  private int bucketsLaunched;
  private volatile boolean paused;
  private Throwable failure;
  private boolean closed;

  /** Makes buckets with so many parts of equal size, once all ranks have registered the same. */
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
    checkNoGroup("making a reducer");
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

  /** Waits for a stream of collectives, each of which has told by then which rank is missing. */
  static void await(Communicator communicator, Stream stream) {
    stream.synchronize(communicator.config().timeout().plus(GRACE));
  }

  private List<String> statement() {
    List<String> lines = new ArrayList<>();
    lines.add("a " + getClass().getSimpleName() + " with " + config);
    for (Parameter parameter : parameters) {
      lines.add("parameter " + (lines.size() - 1) + " " + parameter);
    }
    return lines;
  }

  /** Gives every rank rank 0's parameters; if that fails, gives back what has been made. */
  final void start(Stream ready) {
    try {
      follow(ready);
      Group.run(() -> parameters.forEach(each -> communicator.broadcast(each.value(), 0, stream)));
      for (BucketBuffer bucket : buckets) {
        bucket.clear(stream);
      }
      prepare();
      // Waited for here, since any stream may come with the first gradient.
      await(communicator, stream);
    } catch (Throwable cause) {
      resources.closeAfter(cause);
      throw cause;
    }
  }

  /** Enqueues what else is to be done with the parameters before the first step. */
  void prepare() {
    // Nothing in most reducers.
  }

  /**
   * Says that a gradient will be there when a stream has done what it has been given so far, and
   * launches every bucket whose turn it is.
   *
   * @param parameter a parameter of this reducer, not yet marked in this step
   * @param source the stream that computes the gradient, of this rank's device; best the same
   *     object each time, since each of a bucket's streams costs an event
   * @throws IllegalArgumentException if the parameter is not this reducer's, or the stream of
   *     another device
   * @throws IllegalStateException if the parameter is marked already, the reducer or the stream is
   *     closed, another thread is using the reducer, or this thread has a group open
   * @throws io.nccl4j.NcclException if launching a bucket failed
   * @throws io.nccl4j.CudaException if launching a bucket failed
   */
  public final void markReady(Parameter parameter, Stream source) {
    enter("markReady");
    try {
      BucketEntry entry = entry(parameter);
      checkUsable(source, "markReady");
      checkParametersAreThere();
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
   * Marks all parameters {@link #markReady} at once: for a backward that tells of nothing in
   * between.
   *
   * @param source the stream that computes the gradients, of this rank's device
   * @throws IllegalArgumentException as {@code ready} does
   * @throws IllegalStateException as {@code ready} does
   * @throws io.nccl4j.NcclException as {@code ready} does
   * @throws io.nccl4j.CudaException as {@code ready} does
   */
  public final void allReady(Stream source) {
    for (Parameter parameter : parameters.reversed()) {
      markReady(parameter, source);
    }
  }

  /** Takes a gradient into its bucket, and launches each bucket whose turn has come. */
  private void take(BucketEntry member, Stream source) {
    try {
      marked++;
      member.home().take(source);
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
   * Ends backward: what a stream is given from now on waits until all buckets are reduced. The host
   * does not wait. The next mark begins the next step.
   *
   * <p>Unmarked parameters are refused, and nothing is done then, so that they can still be marked;
   * or, where {@link ReducerConfig#findUnusedParameters} says so, they contribute zeros, unless
   * they were marked since the last {@code finish} {@link #noSync}: then what has accumulated. One
   * that no rank has used gets zeros.
   *
   * @param reader the stream that the optimiser uses, of this rank's device
   * @throws IllegalArgumentException if the stream is of another device
   * @throws IllegalStateException if parameters are not marked and must be, the reducer or the
   *     stream is closed, another thread is using the reducer, this thread has a group open, or it
   *     is within {@code noSync}
   * @throws io.nccl4j.NcclException if launching a bucket failed
   * @throws io.nccl4j.CudaException if launching a bucket failed
   */
  public final void finish(Stream reader) {
    enter("finish");
    try {
      checkUsable(reader, "finish");
      checkParametersAreThere();
      if (paused) {
        throw new IllegalStateException(
            "finish was called within noSync; a step is finished outside of it");
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
          "in step %d %d of %d parameters are not marked ready: %s; mark each, or allow unused ones with ReducerConfig.withFindUnusedParameters(true)"
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
            .filter(parameter -> !entries.get(parameter).marked())
            .map(parameter -> "'" + parameter.name() + "'")
            .toList();
    String told = String.join(", ", names.subList(0, Math.min(names.size(), MOST_NAMES_TOLD)));
    return names.size() <= MOST_NAMES_TOLD
        ? told
        : told + " and " + (names.size() - MOST_NAMES_TOLD) + " more";
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

  /** Learns that the gradients are reduced, in the order of the streams. */
  void stepFinished() {
    // Most reducers are ready for the next step.
  }

  /** Throws if the parameters are not yet what the step before has made of them. */
  void checkParametersAreThere() {
    // Most reducers leave the parameters alone.
  }

  /**
   * Runs a backward whose gradients are only accumulated, by whoever computes them: nothing is
   * reduced. For all but the last part of a batch that is worked on in parts. Marks in it are
   * accepted and launch nothing, so that hooks need not know; they may come from other threads, but
   * not after this has returned.
   *
   * @param backward the work
   * @throws IllegalStateException if parameters are marked in this step already, the reducer is
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
      checkParametersAreThere();
      if (marked > 0) {
        throw new IllegalStateException(
            "noSync comes before the marks of a step; in step %d %d parameters are marked already"
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
   * {@return where backward leaves the gradient of a parameter: its part of a bucket, or what it
   * was registered with} A part of a bucket is zero at first, and the caller's to zero after each
   * step.
   *
   * @param parameter a parameter of this reducer
   * @throws IllegalArgumentException if the parameter is not this reducer's
   */
  public final Buffer gradient(Parameter parameter) {
    return entry(parameter).gradient();
  }

  /** {@return the parameters, as they were registered} */
  public final List<Parameter> parameters() {
    return parameters;
  }

  /** {@return the buckets, in the order in which they are launched} */
  public final List<Bucket> buckets() {
    return Arrays.stream(buckets).map(BucketBuffer::bucket).toList();
  }

  /** {@return how many buckets have been launched in this step} */
  public final int bucketsLaunched() {
    return bucketsLaunched;
  }

  /** {@return the stream on which buckets are reduced: to wait for, or to trace, not to close} */
  public final Stream stream() {
    return stream;
  }

  /** {@return the communicator that the buckets are reduced with} */
  public final Communicator communicator() {
    return communicator;
  }

  /** Makes the communication stream wait for what another stream has been given. */
  final void follow(Stream other) {
    other.record(handOver);
    stream.waitFor(handOver);
  }

  /** Makes another stream wait for what the communication stream has been given. */
  final void handOver(Stream other) {
    stream.record(handOver);
    other.waitFor(handOver);
  }

  final BucketBuffer[] memories() {
    return buckets;
  }

  final OwnedResources resources() {
    return resources;
  }

  /** Remembers why this rank is no longer in step with the others. */
  final void fail(Throwable cause) {
    failure = cause;
  }

  /** Lets this thread in, if nobody else is and the reducer can be used. */
  final void enter(String call) {
    Thread current = Thread.currentThread();
    Thread other = user.compareAndExchange(null, current);
    if (other != null) {
      throw new IllegalStateException(
          "%s was called by %s while %s uses the reducer; one thread at a time may: %s"
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
          call + " is not possible within Group.run, which would keep its operations");
    }
  }

  private BucketEntry entry(Parameter parameter) {
    BucketEntry entry = entries.get(Objects.requireNonNull(parameter, "parameter"));
    if (entry == null) {
      throw new IllegalArgumentException(
          "parameter %s is not one of this reducer's; pass what it was made with: %s"
              .formatted(parameter, this));
    }
    return entry;
  }

  private void checkUnmarked(BucketEntry member) {
    if (member.marked()) {
      throw new IllegalStateException(
          "parameter '%s' is marked ready twice in step %d; it may be once between two calls of finish"
              .formatted(member.parameter().name(), step));
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
   * Waits for what has been launched, for at most the communicator's timeout and 5 seconds, and
   * gives back what the reducer has made. The caller has synchronised the streams whose work uses
   * gradients that live in buckets. Idempotent. What could not be waited for, because a rank did
   * not come, is given back when the communicator is closed or aborted.
   *
   * @throws IllegalStateException if another thread is using the reducer; nothing is done then
   * @throws io.nccl4j.NcclException if a reduction failed, or the time has passed
   * @throws io.nccl4j.CudaException if work on the device failed
   */
  @Override
  public final void close() {
    if (!end()) {
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

  /** Returns whether the caller is the one to give everything back. */
  private boolean end() {
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
