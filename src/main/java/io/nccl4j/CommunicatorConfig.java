package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import java.time.Duration;
import java.util.Objects;
import java.util.OptionalInt;

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
 *
 * @param blocking whether NCCL calls return only when their host side has finished. With a
 *     non-blocking communicator, nccl4j waits for the same state, but with {@code timeout} as the
 *     limit of each step, and {@link Communicator#abort} can end the wait; the cost is a thread per
 *     launch in NCCL. The environment variable {@code NCCL_COMM_BLOCKING}, set to {@code 0} or
 *     {@code 1}, overrides this value with NCCL. C: {@code ncclConfig_t.blocking}
 * @param timeout the maximum time to wait for a peer that does not respond: when creating,
 *     splitting, aborting and closing a communicator, when closing a stream that has its
 *     operations, in each call that enqueues an operation (on a blocking communicator from NCCL
 *     2.28.7 on, which is then aborted), and on the reference backend in each wait inside an
 *     operation. Positive
 * @param device the device of the backend that the rank uses; if empty, {@code rank % deviceCount},
 *     or the device that {@code io.nccl4j.rendezvous} derives from the rank's number on its host,
 *     if it knows that number
 * @param name the name of the communicator in logs and traces, or an empty string. C: {@code
 *     ncclConfig_t.commName}, from NCCL 2.27 on; with an older library the name is omitted and a
 *     warning is logged
 */
public record CommunicatorConfig(
    boolean blocking, Duration timeout, OptionalInt device, String name) {
  // Longer timeouts would overflow the nanosecond clock.
  private static final Duration LONGEST = Duration.ofDays(36_500);

  private static final CommunicatorConfig DEFAULTS =
      new CommunicatorConfig(true, Duration.ofSeconds(30), OptionalInt.empty(), "");

  /**
   * Validates the values.
   *
   * @throws IllegalArgumentException if the timeout is not positive or over 36500 days, the device
   *     is negative, or the name contains a NUL character
   */
  public CommunicatorConfig {
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
}
