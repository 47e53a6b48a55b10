package io.nccl4j.rendezvous;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.abort;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The secret of the file that a variable names. */
class SecretFileTest {
  private static final String TEXT = "correct horse battery staple";

  @TempDir Path folder;

  private Path file;

  @BeforeEach
  void nameFile() {
    file = folder.resolve("secret");
  }

  private void write(String text, String permissions) throws IOException {
    Files.writeString(file, text);
    Files.setPosixFilePermissions(file, PosixFilePermissions.fromString(permissions));
  }

  private String refusal(Path named) {
    Map<String, String> environment = Map.of("NCCL4J_SECRET_FILE", named.toString());
    return assertThrows(IllegalArgumentException.class, () -> Secret.from(environment))
        .getMessage();
  }

  private static byte[] sealed(String variable, String value) {
    byte[] context = {1};
    return Secret.from(Map.of(variable, value))
        .orElseThrow()
        .shared()
        .cipher(context)
        .seal(new byte[8], context);
  }

  @ParameterizedTest
  @ValueSource(
      strings = {TEXT, TEXT + "\n", " " + TEXT + "\r\n", TEXT + "\nanother line\n", TEXT + "\n\n"})
  void firstLineIsTheSecret(String contents) throws IOException {
    write(contents, "rw-------");
    assertArrayEquals(sealed("NCCL4J_SECRET", TEXT), sealed("NCCL4J_SECRET_FILE", file.toString()));
  }

  /** A group may read it, as in a volume of Kubernetes with an fsGroup. */
  @ParameterizedTest
  @ValueSource(strings = {"r--------", "rw-------", "r--r-----", "rw-r-----", "rwx--x--x"})
  void permissionsOfItsOwnerAreAccepted(String permissions) throws IOException {
    write(TEXT, permissions);
    assertArrayEquals(sealed("NCCL4J_SECRET", TEXT), sealed("NCCL4J_SECRET_FILE", file.toString()));
  }

  @ParameterizedTest
  @ValueSource(strings = {"rw-r--r--", "rw-----w-", "rw--w----", "rwxrwxrwx", "r--r--r--"})
  void fileThatOthersCanAccessIsRefused(String permissions) throws IOException {
    write(TEXT, permissions);
    assertEquals(
        "NCCL4J_SECRET_FILE (%s) does not have a secret: others can read or change it; run chmod 600 %s"
            .formatted(file, file),
        refusal(file));
  }

  @Test
  void fileOfAnotherUserIsRefused() throws IOException {
    write(TEXT, "rw-r-----");
    try {
      Files.setAttribute(file, "unix:uid", 65534);
    } catch (FileSystemException notRoot) {
      abort("only root can create files of other users");
    }
    String reason = refusal(file);
    assertTrue(reason.contains(" does not have a secret: it belongs to "), reason);
  }

  @Test
  void unusableFileIsRefused() throws IOException {
    String named = "NCCL4J_SECRET_FILE (" + file + ")";
    assertEquals(
        named
            + " does not have a secret: it cannot be read: java.nio.file.NoSuchFileException: "
            + file,
        refusal(file));
    assertEquals(
        "NCCL4J_SECRET_FILE (" + folder + ") does not have a secret: it must be a regular file",
        refusal(folder));
    assertEquals(
        "NCCL4J_SECRET_FILE (/dev/zero) does not have a secret: it must be a regular file",
        refusal(Path.of("/dev/zero")));
    for (String noPath : new String[] {"", TEXT, "c2VjcmV0/c2VjcmV0c2VjcmV0=="}) {
      assertEquals(
          "NCCL4J_SECRET_FILE must be the absolute path of a file, which begins with '/'",
          refusal(Path.of(noPath)));
    }
    write("x".repeat(4097), "rw-------");
    assertEquals(
        named + " does not have a secret: it has 4097 bytes; it must have at most 4096",
        refusal(file));
    for (String text : new String[] {"", "\n" + TEXT, "fifteen bytes.."}) {
      write(text, "rw-------");
      assertEquals(
          "the first line of %s has %d bytes; it must have 16 or more, and be random"
              .formatted(named, text.startsWith("f") ? 15 : 0),
          refusal(file));
    }
    Files.write(file, TEXT.getBytes(StandardCharsets.UTF_16));
    assertEquals(
        named
            + " does not have a secret: it is not UTF-8 text, such as the output of 'openssl rand"
            + " -hex 32'",
        refusal(file));
  }

  @Test
  void secretInBothVariablesIsRefused() throws IOException {
    write(TEXT, "rw-------");
    Map<String, String> both = Map.of("NCCL4J_SECRET", TEXT, "NCCL4J_SECRET_FILE", file.toString());
    assertEquals(
        "NCCL4J_SECRET and NCCL4J_SECRET_FILE are both set; unset one of them",
        assertThrows(IllegalArgumentException.class, () -> Secret.from(both)).getMessage());
  }
}
