package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalInt;
import org.jspecify.annotations.NullMarked;

/**
 * The configuration of a communicator.
 *
 * {@snippet :
 * CommunicatorConfig config =
 *     CommunicatorConfig.defaults()
 *         .withTimeout(Duration.ofMinutes(2))
 *         .withDevice(localRank)
 *         .withName("gradients");
 * }
 *
 * <p>Immutable: each {@code with} method returns a changed copy.
 */
@NullMarked
public final class CommunicatorConfig {
  // Longer timeouts would overflow the nanosecond clock.
  private static final Duration LONGEST = Duration.ofDays(36_500);

  private static final CommunicatorConfig DEFAULTS =
      new CommunicatorConfig(true, Optional.empty(), TimeoutAction.ABORT, OptionalInt.empty(), "");

  private final boolean blocking;
  private final Optional<Duration> timeout;
  private final TimeoutAction timeoutAction;
  private final OptionalInt device;
  private final String name;

  private CommunicatorConfig(
      boolean blocking,
      Optional<Duration> timeout,
      TimeoutAction timeoutAction,
      OptionalInt device,
      String name) {
    Objects.requireNonNull(timeoutAction, "timeoutAction");
    Objects.requireNonNull(device, "device");
    Objects.requireNonNull(name, "name");
    timeout.ifPresent(CommunicatorConfig::checkTimeout);
    if (device.isPresent() && device.getAsInt() < 0) {
      throw new IllegalArgumentException(
          "device is " + device.getAsInt() + "; devices are numbered from 0");
    }
    if (name.indexOf('\0') >= 0) {
      throw new IllegalArgumentException("name contains a NUL character, which is not allowed");
    }
    this.blocking = blocking;
    this.timeout = timeout;
    this.timeoutAction = timeoutAction;
    this.device = device;
    this.name = name;
  }

  private static void checkTimeout(Duration timeout) {
    Arguments.positive(timeout, "timeout");
    if (timeout.compareTo(LONGEST) > 0) {
      throw new IllegalArgumentException(
          "timeout is " + timeout + "; it must be at most " + LONGEST.toDays() + " days");
    }
  }

  /**
   * {@return the default configuration: blocking, the timeout of the backend, whose end aborts the
   * communicator, the device that the rank implies, no name}
   */
  public static CommunicatorConfig defaults() {
    return DEFAULTS;
  }

  /**
   * {@return a copy that is blocking or not}
   *
   * @param value whether NCCL calls return only when their host side has finished
   */
  public CommunicatorConfig withBlocking(boolean value) {
    return new CommunicatorConfig(value, timeout, timeoutAction, device, name);
  }

  /**
   * {@return a copy with another timeout}
   *
   * @param value the maximum time to wait for a peer that does not respond; positive
   * @throws IllegalArgumentException if the value is not allowed
   */
  public CommunicatorConfig withTimeout(Duration value) {
    Objects.requireNonNull(value, "timeout");
    return new CommunicatorConfig(blocking, Optional.of(value), timeoutAction, device, name);
  }

  /**
   * {@return a copy with another action after a timeout}
   *
   * @param value what happens on NCCL to an operation that the device does not complete within the
   *     timeout
   */
  public CommunicatorConfig withTimeoutAction(TimeoutAction value) {
    return new CommunicatorConfig(blocking, timeout, value, device, name);
  }

  /**
   * {@return a copy with a device}
   *
   * @param value the index of the device, from 0
   * @throws IllegalArgumentException if the value is not allowed
   */
  public CommunicatorConfig withDevice(int value) {
    return new CommunicatorConfig(blocking, timeout, timeoutAction, OptionalInt.of(value), name);
  }

  /**
   * {@return a copy with a name for logs and traces}
   *
   * @param value the name, or an empty string; no NUL characters
   * @throws IllegalArgumentException if the value is not allowed
   */
  public CommunicatorConfig withName(String value) {
    return new CommunicatorConfig(blocking, timeout, timeoutAction, device, value);
  }

  /**
   * {@return whether NCCL calls return only when their host side has finished} With a non-blocking
   * communicator, nccl4j waits for the same state, but with {@code timeout} as the limit of each
   * step, and {@link Communicator#abort} can end the wait; the cost is a thread per launch in NCCL.
   * The environment variable {@code NCCL_COMM_BLOCKING}, set to {@code 0} or {@code 1}, overrides
   * this value with NCCL. C: {@code ncclConfig_t.blocking}
   */
  public boolean blocking() {
    return blocking;
  }

  /**
   * {@return the maximum time to wait for a peer that does not respond: when creating, splitting,
   * aborting and closing a communicator, when closing a stream that has its operations, in each
   * call that enqueues an operation, and until the device or the reference backend makes progress
   * with it; positive. If empty, 30 seconds on the reference backend and 10 minutes on NCCL, where
   * a device may be busy with other work; see {@link Communicator#timeout}} The table of all waits
   * is in {@code docs/reference/timeouts.md}.
   */
  public Optional<Duration> timeout() {
    return timeout;
  }

  /**
   * {@return what happens on NCCL to an operation that the device does not complete within the
   * timeout} On the reference backend the operation fails, whatever this is.
   */
  public TimeoutAction timeoutAction() {
    return timeoutAction;
  }

  /**
   * {@return the device of the backend that the rank uses; if empty, {@code rank % deviceCount}, or
   * the device that {@code io.nccl4j.rendezvous} derives from the rank's number on its host, if it
   * knows that number}
   */
  public OptionalInt device() {
    return device;
  }

  /**
   * {@return the name of the communicator in logs and traces, or an empty string} C: {@code
   * ncclConfig_t.commName}, from NCCL 2.27 on; with an older library the name is omitted and a
   * warning is logged.
   */
  public String name() {
    return name;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof CommunicatorConfig that
        && blocking == that.blocking
        && timeout.equals(that.timeout)
        && timeoutAction == that.timeoutAction
        && device.equals(that.device)
        && name.equals(that.name);
  }

  @Override
  public int hashCode() {
    return Objects.hash(blocking, timeout, timeoutAction, device, name);
  }

  @Override
  public String toString() {
    return "CommunicatorConfig[blocking=%s, timeout=%s, timeoutAction=%s, device=%s, name=%s]"
        .formatted(
            blocking,
            timeout.map(Duration::toString).orElse("that of the backend"),
            timeoutAction,
            device,
            name);
  }
}
