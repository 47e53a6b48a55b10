package io.nccl4j.tools.perf;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.plugin.ProfilerEvent;
import org.junit.jupiter.api.Test;

/** What is shown of the choices that NCCL reports for the calls of a row. */
class NcclChoicesTest {
  private final NcclChoices choices = new NcclChoices(new Flags());

  private void called(long id) {
    choices.report(
        new ProfilerEvent.Called(id, 0, 7, 0, "AllReduce", 4, "ncclFloat32", 0, 9, false));
  }

  private void launched(long call, String protocol, int channels) {
    choices.report(
        new ProfilerEvent.Collective(
            100 + call,
            0,
            call,
            7,
            0,
            0,
            "AllReduce",
            1,
            2,
            4,
            "ncclFloat32",
            0,
            "RING",
            protocol,
            channels,
            16));
  }

  private String shown() {
    return NcclChoices.text(choices.reported());
  }

  @Test
  void choiceThatAllCallsShareIsShownOnce() {
    assertEquals("-", shown());
    called(1);
    called(2);
    assertEquals("-", shown());
    launched(1, "LL", 2);
    launched(2, "LL", 2);
    assertEquals("RING/LL/2", shown());
  }

  @Test
  void differentChoicesAreAllShown() {
    called(1);
    called(2);
    launched(2, "LL", 2);
    assertEquals("differ:-,RING/LL/2", shown());
    launched(1, "LL", 4);
    assertEquals("differ:RING/LL/2,RING/LL/4", shown());
  }
}
