package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import java.time.Duration;
import java.util.Objects;
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
      new CommunicatorConfig(true, Duration.ofSeconds(30), OptionalInt.empty(), "");

  private final boolean blocking;
  private final Duration timeout;
  private final OptionalInt device;
  private final String name;

  private CommunicatorConfig(boolean blocking, Duration timeout, OptionalInt device, String name) {
    Objects.requireNonNull(device, "device");
    Objects.requireNonNull(name, "name");
    Arguments.positive(timeout, "timeout");
    if (timeout.compareTo(LONGEST) > 0) {
      throw new IllegalArgumentException(
          "timeout is " + timeout + "; it must be at most " + LONGEST.toDays() + " days");
    }
    if (device.isPresent() && device.getAsInt() < 0) {
      throw new IllegalArgumentException(
          "device is " + device.getAsInt() + "; devices are numbered from 0");
    }
    if (name.indexOf('\0') >= 0) {
      throw new IllegalArgumentException("name contains a NUL character, which is not allowed");
    }
    this.blocking = blocking;
    this.timeout = timeout;
    this.device = device;
    this.name = name;
  }

  /**
   * {@return the default configuration: blocking, a timeout of 30 seconds, the device that the rank
   * implies, no name}
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
    return new CommunicatorConfig(value, timeout, device, name);
  }

  /**
   * {@return a copy with another timeout}
   *
   * @param value the maximum time to wait for a peer that does not respond; positive
   * @throws IllegalArgumentException if the value is not allowed
   */
  public CommunicatorConfig withTimeout(Duration value) {
    return new CommunicatorConfig(blocking, value, device, name);
  }

  /**
   * {@return a copy with a device}
   *
   * @param value the index of the device, from 0
   * @throws IllegalArgumentException if the value is not allowed
   */
  public CommunicatorConfig withDevice(int value) {
    return new CommunicatorConfig(blocking, timeout, OptionalInt.of(value), name);
  }

  /**
   * {@return a copy with a name for logs and traces}
   *
   * @param value the name, or an empty string; no NUL characters
   * @throws IllegalArgumentException if the value is not allowed
   */
  public CommunicatorConfig withName(String value) {
    return new CommunicatorConfig(blocking, timeout, device, value);
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
   * call that enqueues an operation (on a blocking communicator from NCCL 2.28.7 on, which is then
   * aborted), and on the reference backend in each wait inside an operation; positive}
   */
  public Duration timeout() {
    return timeout;
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
        && device.equals(that.device)
        && name.equals(that.name);
  }

  @Override
  public int hashCode() {
    return Objects.hash(blocking, timeout, device, name);
  }

  @Override
  public String toString() {
    return "CommunicatorConfig[blocking=%s, timeout=%s, device=%s, name=%s]"
        .formatted(blocking, timeout, device, name);
  }
}
