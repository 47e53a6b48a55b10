package io.nccl4j.internal.schedule;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.schedule.Layout;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Tests the messages for null orders and null elements of orders. */
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

  private static void refused(String message, Executable use) {
    assertEquals(message, assertThrows(NullPointerException.class, use).getMessage());
  }
}
