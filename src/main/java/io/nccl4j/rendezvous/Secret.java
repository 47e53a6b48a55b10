package io.nccl4j.rendezvous;

import io.nccl4j.internal.auth.SharedSecret;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import org.jspecify.annotations.NullMarked;

/**
 * A secret shared by the ranks of a run. It is never sent, and {@link #toString} does not reveal
 * it.
 *
 * <p>It should be random, such as the output of {@code openssl rand -hex 32}: an eavesdropper can
 * test guesses offline.
 */
@NullMarked
public final class Secret {
  /**
   * The environment variable that {@link LaunchEnvironment} reads the secret from, as UTF-8 text.
   */
  public static final String VARIABLE = SharedSecret.VARIABLE;

  /** The minimum length of a secret, in bytes. */
  public static final int MIN_BYTES = 16;

  private final SharedSecret shared;

  private Secret(byte[] bytes) {
    this.shared = new SharedSecret(bytes);
  }

  /**
   * Creates a secret from bytes, which are copied.
   *
   * @param bytes at least {@link #MIN_BYTES} bytes
   * @return the secret
   * @throws IllegalArgumentException if there are fewer than {@link #MIN_BYTES}
   */
  public static Secret of(byte[] bytes) {
    return checked(Objects.requireNonNull(bytes, "bytes").clone(), "secret");
  }

  /**
   * Creates a secret from the UTF-8 encoding of a text.
   *
   * @param text a text of at least {@link #MIN_BYTES} bytes in UTF-8
   * @return the secret
   * @throws IllegalArgumentException if it has fewer than {@link #MIN_BYTES} bytes
   */
  public static Secret of(String text) {
    return checked(text.getBytes(StandardCharsets.UTF_8), "secret");
  }

  /**
   * {@return the secret from the environment variable {@link #VARIABLE}, if it is set}
   *
   * @param environment the variables by name; white space around the value is ignored
   * @throws IllegalArgumentException if it is set but empty or too short
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

  /** Returns the internal form, from which keys are derived. */
  SharedSecret shared() {
    return shared;
  }

  @Override
  public String toString() {
    return "Secret[hidden]";
  }
}
