package io.nccl4j.internal.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Tests the environment of C code. */
class NativeEnvironmentTest {
  private static final String VARIABLE = "NCCL4J_TEST_OF_THE_ENVIRONMENT";

  @Test
  void variableThatIsSetIsSeenByCodeInCOnly() {
    assertNull(System.getenv(VARIABLE));
    assertEquals(Optional.empty(), NativeEnvironment.get(VARIABLE));
    NativeEnvironment.set(VARIABLE, "first");
    NativeEnvironment.set(VARIABLE, "\u00e9t\u00e9 = 2");
    assertEquals(Optional.of("\u00e9t\u00e9 = 2"), NativeEnvironment.get(VARIABLE));
    assertNull(System.getenv(VARIABLE));
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "A=B"})
  void impossibleNameIsRejected(String name) {
    IllegalArgumentException refused =
        assertThrows(IllegalArgumentException.class, () -> NativeEnvironment.set(name, "1"));
    assertEquals(
        "variable is \"" + name + "\"; it must not be empty or contain =", refused.getMessage());
  }
}
