package io.nccl4j.internal.reference.bootstrap;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.internal.reference.collective.AllReduceAlgorithm;
import io.nccl4j.internal.reference.rank.CommunicatorState;
import io.nccl4j.internal.reference.rank.RankOptions;
import io.nccl4j.internal.reference.rank.RankState;
import io.nccl4j.internal.reference.transport.LinkKey;
import io.nccl4j.internal.reference.transport.Presence;
import io.nccl4j.internal.reference.transport.Route;
import io.nccl4j.schedule.Layout;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * A rank that has closed may still have data on its way. Its process reports both in one message,
 * and another rank must never see the end without the data.
 */
class PresenceOrderTest {
  private static final LinkKey LINK = new LinkKey(Route.MESSAGES, 0, 1, 0);
  private static final int SLICES = 3;

  private static CommunicatorState rankZeroOfTwoProcesses() {
    ProcessEndpoint here = new ProcessEndpoint();
    ProcessAddress there = new ProcessEndpoint().address();
    RankMap rankMap = RankMap.of(Secret.random(), List.of(here.address(), there));
    return new CommunicatorState(
        here, rankMap, new RankOptions(AllReduceAlgorithm.RING, Layout.defaults(), false, ""));
  }

  private static Message closing(Message.Kind kind) throws IOException {
    byte[] bytes =
        Message.of(
                kind,
                out -> {
                  if (kind == Message.Kind.STATUS) {
                    out.writeInt(1);
                  }
                  out.writeInt(1);
                  LINK.write(out);
                  out.writeLong(SLICES);
                  out.writeInt(1);
                  new RankState(1).write(out, Presence.CLOSED);
                })
            .array();
    return Message.begin(ByteBuffer.wrap(bytes), bytes.length)
        .with(Arrays.copyOfRange(bytes, Message.HEADER_BYTES, bytes.length));
  }

  /** Applies the message up to each of its bytes, as if the reader was stopped there. */
  @ParameterizedTest
  @EnumSource(names = {"PRESENCE", "STATUS"})
  void endOfRankIsNotSeenBeforeItsData(Message.Kind kind) throws IOException {
    Message whole = closing(kind);
    for (int length = 0; length < whole.bytes().length; length++) {
      CommunicatorState state = rankZeroOfTwoProcesses();
      Message part = whole.with(Arrays.copyOf(whole.bytes(), length));
      assertThrows(EOFException.class, () -> state.remoteProcess(1).receive(null, part));
      if (state.presence(1) == Presence.CLOSED) {
        assertFalse(state.links().arriving(LINK).exhausted(), "after byte " + length);
      }
    }
    CommunicatorState state = rankZeroOfTwoProcesses();
    state.remoteProcess(1).receive(null, whole);
    assertEquals(Presence.CLOSED, state.presence(1));
    assertFalse(state.links().arriving(LINK).exhausted());
  }
}
