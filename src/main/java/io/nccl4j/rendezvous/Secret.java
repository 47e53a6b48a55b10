package io.nccl4j.rendezvous;

import io.nccl4j.internal.auth.SharedSecret;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.PosixFilePermission;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
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
   * Prefer {@link #FILE_VARIABLE}: flight recordings contain the environment.
   */
  public static final String VARIABLE = SharedSecret.VARIABLE;

  /**
   * The environment variable with the absolute path of a file that has the secret in its first
   * line, as UTF-8 text. The file must belong to this process's user or to root. Only its owner may
   * write it; only its owner and group may read it.
   */
  public static final String FILE_VARIABLE = VARIABLE + "_FILE";

  /** The minimum length of a secret, in bytes. */
  public static final int MIN_BYTES = 16;

  private static final int MAX_FILE_BYTES = 4096;

  private static final EnumSet<PosixFilePermission> REFUSED =
      EnumSet.of(
          PosixFilePermission.GROUP_WRITE,
          PosixFilePermission.OTHERS_READ,
          PosixFilePermission.OTHERS_WRITE);

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
   * {@return the secret that {@link #VARIABLE} or {@link #FILE_VARIABLE} sets, if one is set}
   *
   * @param environment the variables by name; white space around the secret is ignored
   * @throws IllegalArgumentException if both are set; if the secret is too short; or if the file
   *     cannot be read, is not a regular file of at most 4096 bytes of UTF-8, or has the wrong
   *     owner or permissions
   */
  public static Optional<Secret> from(Map<String, String> environment) {
    String text = Objects.requireNonNull(environment, "environment").get(VARIABLE);
    String file = environment.get(FILE_VARIABLE);
    if (text != null && file != null) {
      throw new IllegalArgumentException(
          VARIABLE + " and " + FILE_VARIABLE + " are both set; unset one of them");
    }
    if (text != null) {
      return Optional.of(checked(bytes(text), VARIABLE));
    }
    return Optional.ofNullable(file)
        .map(path -> checked(bytes(firstLine(path)), "the first line of " + named(path)));
  }

  private static byte[] bytes(String text) {
    return text.strip().getBytes(StandardCharsets.UTF_8);
  }

  private static String named(String file) {
    return FILE_VARIABLE + " (" + file + ")";
  }

  private static String firstLine(String file) {
    if (!file.startsWith("/")) {
      // Not shown, since it may be the secret itself.
      throw new IllegalArgumentException(
          FILE_VARIABLE + " must be the absolute path of a file, which begins with '/'");
    }
    String problem;
    Throwable cause = null;
    try {
      Path path = Path.of(file);
      PosixFileAttributes found = Files.readAttributes(path, PosixFileAttributes.class);
      if (!found.isRegularFile()) {
        problem = "it must be a regular file";
      } else if (!ownersOfSecrets().contains(uid(path))) {
        problem = "it belongs to " + found.owner().getName() + ", not to this user or root";
      } else if (!Collections.disjoint(found.permissions(), REFUSED)) {
        problem = "others can read or change it; run chmod 600 " + file;
      } else if (found.size() > MAX_FILE_BYTES) {
        problem = "it has " + found.size() + " bytes; it must have at most " + MAX_FILE_BYTES;
      } else {
        return read(path).lines().findFirst().orElse("");
      }
    } catch (CharacterCodingException e) {
      problem = "it is not UTF-8 text, such as the output of 'openssl rand -hex 32'";
      cause = e;
    } catch (IOException | InvalidPathException e) {
      problem = "it cannot be read: " + e;
      cause = e;
    }
    throw new IllegalArgumentException(named(file) + " does not have a secret: " + problem, cause);
  }

  private static Set<Integer> ownersOfSecrets() throws IOException {
    return Set.copyOf(List.of(0, PrivateDirectory.userNumber(Path.of("/proc/self"))));
  }

  private static Integer uid(Path path) throws IOException {
    return (Integer) Files.getAttribute(path, "unix:uid");
  }

  private static String read(Path path) throws IOException {
    try (InputStream in = Files.newInputStream(path)) {
      ByteBuffer bytes = ByteBuffer.wrap(in.readNBytes(MAX_FILE_BYTES));
      return StandardCharsets.UTF_8.newDecoder().decode(bytes).toString();
    }
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
