package io.nccl4j.plugin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Tests the arguments of an environment that is not installed. */
class NcclEnvironmentTest {
  private final NcclEnvironment environment = new NcclEnvironment();

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "PATH | name is 'PATH'; it must be NCCL_ and capital letters, digits or _",
        "NCCL_DEBUG | name is NCCL_DEBUG, which NCCL reads before it has a plugin; set it for the process",
        "NCCL_RAS_ENABLE | name is NCCL_RAS_ENABLE, which is 0 here: with NCCL's RAS, System.exit would hang",
      })
  void nameThatNcclDoesNotAskForIsRefused(String name, String message) {
    assertEquals(
        message,
        assertThrows(IllegalArgumentException.class, () -> environment.set(name, 1)).getMessage());
  }

  @Test
  void valueWithNulIsRefused() {
    assertEquals(
        "value of NCCL_ALGO must not contain NUL",
        assertThrows(
                IllegalArgumentException.class, () -> environment.set("NCCL_ALGO", "Ring\0Tree"))
            .getMessage());
  }
}
