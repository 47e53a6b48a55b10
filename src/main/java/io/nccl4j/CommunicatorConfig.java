package io.nccl4j;

import io.nccl4j.internal.util.Arguments;
import java.time.Duration;
import java.util.Objects;
import java.util.OptionalInt;

/**
 * How a communicator is to be made. Immutable: each {@code with} method returns a changed copy.
 *
 * @param blocking whether calls return only when NCCL has finished their host side. A non-blocking
 *     communicator waits for the same state, but in nccl4j, with the deadline of {@code timeout} at
 *     each step and so that {@link Communicator#abort} can end it; NCCL pays for that with a thread
 *     per launch. With NCCL, {@code NCCL_COMM_BLOCKING=0} or {@code 1} in the environment wins over
 *     it. C: {@code ncclConfig_t.blocking}
 * @param timeout the longest wait for a silent peer: making, splitting, aborting and closing a
 *     communicator, closing a stream that carries its operations, each call that enqueues one (on a
 *     blocking communicator from NCCL 2.28.7 on, and it is then aborted), and on the reference
 *     backend each wait inside an operation. Positive
 * @param device which device of the backend the rank uses; if empty, {@code rank % deviceCount}, or
 *     where {@code io.nccl4j.rendezvous} knows the rank's number on its host, what that implies
 * @param name what the communicator is called in logs and traces, or an empty string. C: {@code
 *     ncclConfig_t.commName}, from NCCL 2.27 on; an older one is made without, and a warning says
 *     so
 */
public record CommunicatorConfig(
    boolean blocking, Duration timeout, OptionalInt device, String name) {
  // More nanoseconds than this do not fit into the clock that waits are measured with.
  private static final Duration LONGEST = Duration.ofDays(36_500);

  private static final CommunicatorConfig DEFAULTS =
      new CommunicatorConfig(true, Duration.ofSeconds(30), OptionalInt.empty(), "");

  /**
   * Checks the values.
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
      throw new IllegalArgumentException("name contains a NUL character; C strings cannot");
    }
  }

  /**
   * {@return the configuration that suits most programs: blocking, 30 seconds, the device that the
   * rank implies, no name}
   */
  public static CommunicatorConfig defaults() {
    return DEFAULTS;
  }

  /**
   * {@return a copy that is blocking or not}
   *
   * @param value whether calls return only when NCCL has finished their host side
   */
  public CommunicatorConfig withBlocking(boolean value) {
    return new CommunicatorConfig(value, timeout, device, name);
  }

  /**
   * {@return a copy with another deadline}
   *
   * @param value the longest wait for a silent peer; positive
   * @throws IllegalArgumentException if the value is not allowed
   */
  public CommunicatorConfig withTimeout(Duration value) {
    return new CommunicatorConfig(blocking, value, device, name);
  }

  /**
   * {@return a copy for a given device}
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
