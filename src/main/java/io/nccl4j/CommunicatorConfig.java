package io.nccl4j;

import java.time.Duration;
import java.util.Objects;
import java.util.OptionalInt;

/**
 * How a communicator is to be made. Immutable: each {@code with} method returns a changed copy.
 *
 * @param blocking whether calls return only when NCCL has finished their host side. A non-blocking
 *     communicator waits for the same state, but in nccl4j, with the deadline of {@code timeout} at
 *     each step and so that {@link Communicator#abort} can end it; NCCL pays for that with a thread
 *     per launch. C: {@code ncclConfig_t.blocking}
 * @param timeout the longest wait for a silent peer: making, splitting and closing a communicator,
 *     and on the reference backend each wait inside a collective. Positive
 * @param device which device of the backend the rank uses; if empty, {@code rank % deviceCount}
 * @param name what the communicator is called in logs and traces, or an empty string. C: {@code
 *     ncclConfig_t.commName}, from NCCL 2.27 on
 */
public record CommunicatorConfig(
    boolean blocking, Duration timeout, OptionalInt device, String name) {
  private static final CommunicatorConfig DEFAULTS =
      new CommunicatorConfig(true, Duration.ofSeconds(30), OptionalInt.empty(), "");

  /** Checks the values. */
  public CommunicatorConfig {
    Objects.requireNonNull(timeout, "timeout");
    Objects.requireNonNull(device, "device");
    Objects.requireNonNull(name, "name");
    if (timeout.isNegative() || timeout.isZero()) {
      throw new IllegalArgumentException("timeout is " + timeout + "; it must be positive");
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
   * Returns the configuration that suits most programs: blocking, 30 seconds, the device that the
   * rank implies, no name.
   */
  public static CommunicatorConfig defaults() {
    return DEFAULTS;
  }

  /** Returns a copy that is blocking or not. */
  public CommunicatorConfig withBlocking(boolean value) {
    return new CommunicatorConfig(value, timeout, device, name);
  }

  /** Returns a copy with another deadline, which must be positive. */
  public CommunicatorConfig withTimeout(Duration value) {
    return new CommunicatorConfig(blocking, value, device, name);
  }

  /** Returns a copy for a given device. */
  public CommunicatorConfig withDevice(int value) {
    return new CommunicatorConfig(blocking, timeout, OptionalInt.of(value), name);
  }

  /** Returns a copy with a name for logs and traces. */
  public CommunicatorConfig withName(String value) {
    return new CommunicatorConfig(blocking, timeout, device, value);
  }
}
