package io.nccl4j.rendezvous;

import io.nccl4j.internal.auth.SharedSecret;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;

/**
 * What the ranks of a run know and nobody else. It is never sent and never shown: {@link #toString}
 * says only that there is one.
 *
 * <p>It should be random, such as the output of {@code openssl rand -hex 32}: who can listen can
 * try out guesses at their own leisure.
 */
public final class Secret {
  /**
   * The environment variable that {@link LaunchEnvironment} reads the secret from, as UTF-8 text.
   */
  public static final String VARIABLE = SharedSecret.VARIABLE;

  /** The shortest secret, in bytes, that is accepted. */
  public static final int MIN_BYTES = 16;

  private final SharedSecret shared;

  private Secret(byte[] bytes) {
    this.shared = new SharedSecret(bytes);
  }

  /**
   * Makes a secret from bytes, which are copied.
   *
   * @param bytes {@link #MIN_BYTES} bytes or more
   * @return the secret
   * @throws IllegalArgumentException if there are fewer than {@link #MIN_BYTES}
   */
  public static Secret of(byte[] bytes) {
    return checked(Objects.requireNonNull(bytes, "bytes").clone(), "secret");
  }

  /**
   * Makes a secret from the UTF-8 form of a text.
   *
   * @param text a text whose UTF-8 form has {@link #MIN_BYTES} bytes or more
   * @return the secret
   * @throws IllegalArgumentException if that has fewer than {@link #MIN_BYTES} bytes
   */
  public static Secret of(String text) {
    return checked(text.getBytes(StandardCharsets.UTF_8), "secret");
  }

  /**
   * {@return the secret in {@link #VARIABLE} of an environment, if it is set}
   *
   * @param environment the variables by name; white space around the value does not count
   * @throws IllegalArgumentException if it is set and too short, or empty
   */
  public static Optional<Secret> from(Map<String, String> environment) {
    return Optional.ofNullable(Objects.requireNonNull(environment, "environment").get(VARIABLE))
        .map(text -> checked(text.strip().getBytes(StandardCharsets.UTF_8), VARIABLE));
  }

  private static Secret checked(byte[] bytes, String name) {
    if (bytes.length < MIN_BYTES) {
      throw new IllegalArgumentException(
          name
              + " has "
              + bytes.length
              + " bytes; it must have "
              + MIN_BYTES
              + " or more, and be random");
    }
    return new Secret(bytes);
  }

  /** Returns what keys are made from. */
  SharedSecret shared() {
    return shared;
  }

  @Override
  public String toString() {
    return "Secret[hidden]";
  }
}
