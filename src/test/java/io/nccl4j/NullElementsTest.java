package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.rendezvous.LaunchEnvironment;
import io.nccl4j.rendezvous.Secret;
import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Ring;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Tests the messages for null collections, arrays and elements in calls without a backend. */
class NullElementsTest {
  @Test
  void ringOrder_namesIndex() {
    refused("order has a null element, at index 1", () -> Ring.of(Arrays.asList(0, null)));
    refused("order", () -> Ring.of(null));
  }

  @Test
  void ordersOfLayout_nameChannelAndIndex() {
    Layout layout = Layout.defaults();
    refused(
        "ringOrders has a null element, at index 0",
        () -> layout.withRingOrders(Collections.singletonList(null)));
    refused(
        "treeOrders of channel 1 has a null element, at index 2",
        () -> layout.withTreeOrders(List.of(List.of(0), Arrays.asList(1, 0, null))));
    refused("ringOrders", () -> layout.withRingOrders(null));
    refused("treeOrders", () -> layout.withTreeOrders(null));
  }

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
