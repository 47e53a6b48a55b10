package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.rendezvous.LaunchEnvironment;
import io.nccl4j.rendezvous.Secret;
import java.util.Collections;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Tests the messages for null collections, arrays and elements in calls without a backend. */
class NullElementsTest {
  @Test
  void environment_namesVariable() {
    refused(
        "environment has a null value, of RANK",
        () -> LaunchEnvironment.from(Collections.singletonMap("RANK", null)));
    refused(
        "environment has a null name",
        () -> LaunchEnvironment.from(Collections.singletonMap(null, "1")));
    refused("environment", () -> LaunchEnvironment.from(null));
    refused("environment", () -> Secret.from(null));
  }

  @Test
  void bytes_areNamed() {
    refused("bytes", () -> UniqueId.of(null));
    refused("bytes", () -> Secret.of((byte[]) null));
  }

  @Test
  void communicators_nameIndex() {
    refused(
        "communicators has a null element, at index 0",
        () -> Communicator.abortAll(Collections.singletonList(null)));
    refused("communicators", () -> Communicator.abortAll(null));
  }

  @Test
  void attempts_nameIndex() {
    refused(
        "attempts has a null element, at index 0",
        () -> new LibraryNotFoundException("nccl", Collections.singletonList(null), "Install it."));
    refused("attempts", () -> new LibraryNotFoundException("nccl", null, "Install it."));
  }

  private static void refused(String message, Executable use) {
    assertEquals(message, assertThrows(NullPointerException.class, use).getMessage());
  }
}
