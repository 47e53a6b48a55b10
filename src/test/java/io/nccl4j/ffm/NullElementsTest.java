package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ShrinkMode;
import io.nccl4j.UniqueId;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.NcclCommunicator;
import io.nccl4j.nccl.NcclConfig;
import io.nccl4j.nccl.WaitSignal;
import io.nccl4j.nccl.WindowOption;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Tests the messages for null collections and null elements in calls that only NCCL has. */
@OnStandIn
class NullElementsTest {
  private static final NcclConfig CONFIG = NcclConfig.of(CommunicatorConfig.defaults());
  private static final String SECOND_OPTION = "options has a null element, at index 1";

  @Test
  void uniqueIds_nameIndex() {
    try (Pair pair = new Pair(CommunicatorConfig.defaults())) {
      List<UniqueId> ids = Arrays.asList(pair.backend().newUniqueId(), null);
      String named = "ids has a null element, at index 1";
      refused(named, () -> NcclBackend.of(pair.backend()).newCommunicator(ids, 2, 0, CONFIG));
      refused(named, () -> NcclBackend.of(pair.backend()).newCommunicatorAsync(ids, 2, 0, CONFIG));
      refused(
          "ids",
          () ->
              NcclBackend.of(pair.backend()).newCommunicator((List<UniqueId>) null, 2, 0, CONFIG));
    }
  }

  @Test
  void excludedRanks_areNamed() {
    try (Pair pair = new Pair(CommunicatorConfig.defaults())) {
      String named = "excludedRanks has a null element";
      Communicator comm = pair.rank(0);
      refused(
          named,
          () ->
              NcclCommunicator.of(comm)
                  .shrink(Collections.singleton(null), ShrinkMode.FINISH_FIRST, CONFIG));
    }
  }

  @Test
  void windowOptions_nameIndex() {
    try (Pair pair = new Pair(CommunicatorConfig.defaults())) {
      Communicator comm = pair.rank(0);
      List<Buffer> buffers = pair.registrable(DataType.INT8, 4096);
      Buffer buffer = buffers.getFirst();
      refused(
          SECOND_OPTION,
          () -> NcclCommunicator.of(comm).registerWindow(buffer, WindowOption.SYMMETRIC, null));
      refused(
          SECOND_OPTION,
          () ->
              NcclCommunicator.of(comm).registerWindowAsync(buffer, WindowOption.SYMMETRIC, null));
      refused(
          "options", () -> NcclCommunicator.of(comm).registerWindow(buffer, (WindowOption[]) null));
      buffers.forEach(Buffer::close);
    }
  }

  @Test
  void signals_nameIndex() {
    try (Pair pair = new Pair(CommunicatorConfig.defaults())) {
      List<WaitSignal> signals = Arrays.asList(new WaitSignal(1, 1), null);
      refused(
          "signals has a null element, at index 1",
          () -> pair.nccl(0).waitSignal(signals, pair.stream(0)));
    }
  }

  private static void refused(String message, Executable use) {
    assertEquals(message, assertThrows(NullPointerException.class, use).getMessage());
  }
}
