package io.nccl4j.internal.schedule;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.schedule.Layout;
import io.nccl4j.schedule.Protocol;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

class ChannelDivisionTest {
  // Computed by hand from the cells of 16 KiB (LL: 4 KiB) of NCCL's scheduleCollTasksToPlan.
  @ParameterizedTest
  @CsvSource({
    // One channel gets everything.
    "SIMPLE, 1, 4, 1000000, 0 1000000",
    // Two channels require 64 KiB.
    "SIMPLE, 2, 4, 16383, 0 16383",
    "SIMPLE, 2, 4, 16384, 0 8192 16384",
    // Five cells: three and two.
    "SIMPLE, 2, 4, 16385, 0 12288 16385",
    "SIMPLE, 2, 8, 10240, 0 6144 10240",
    // Sixty-two cells for three channels: twice twenty-one, and the remainder.
    "SIMPLE, 3, 2, 500000, 0 172032 344064 500000",
    // One byte more than six cells requires a fourth channel, which is not allowed.
    "SIMPLE, 3, 1, 98305, 0 32768 65536 98305",
    // The same with a fourth channel.
    "SIMPLE, 4, 1, 98305, 0 32768 65536 98304 98305",
    "LL, 2, 4, 4095, 0 4095",
    "LL, 2, 4, 4096, 0 2048 4096",
    "LL, 2, 4, 4097, 0 3072 4097",
    "LL128, 2, 4, 2560, 0 2560",
    "LL128, 2, 4, 8193, 0 8192 8193"
  })
  void channelsGetWholeCells(
      Protocol protocol, int channels, int elementBytes, long count, String bounds) {
    Layout layout = Layout.defaults().withChannels(channels).withProtocol(protocol);
    assertEquals(bounds, bounds(layout, elementBytes, count));
  }

  // With the cells of 8 KiB (LL: 2 KiB) of NCCL 2.23 to 2.28.
  @ParameterizedTest
  @CsvSource({
    // Nine cells: five and four.
    "SIMPLE, 2, 4, 16385, 0 10240 16385",
    "LL, 2, 4, 4097, 0 2560 4097",
    // One byte more than twelve cells.
    "SIMPLE, 3, 1, 98305, 0 32768 65536 98305"
  })
  void smallerCellsDivideMoreEvenly(
      Protocol protocol, int channels, int elementBytes, long count, String bounds) {
    Layout layout =
        Layout.defaults().withCellBytes(8 << 10).withChannels(channels).withProtocol(protocol);
    assertEquals(bounds, bounds(layout, elementBytes, count));
  }

  private static String bounds(Layout layout, int elementBytes, long count) {
    ChannelDivision division = new ChannelDivision(layout, true, 2);
    division.divide(count, elementBytes);
    StringBuilder found = new StringBuilder("0");
    for (int channel = 0; channel < division.channels(); channel++) {
      found.append(' ').append(division.end(channel));
    }
    return found.toString();
  }

  @Test
  void llRingRequiresMorePerChannelWithMoreRanks() {
    Layout layout = Layout.defaults().withChannels(2).withProtocol(Protocol.LL);
    assertEquals(2, channels(new ChannelDivision(layout, true, 4), 8192));
    assertEquals(1, channels(new ChannelDivision(layout, true, 5), 8192));
    assertEquals(2, channels(new ChannelDivision(layout, false, 64), 8192));
  }

  private static int channels(ChannelDivision division, long count) {
    division.divide(count, 4);
    return division.channels();
  }

  @Test
  void zeroElementsUseNoChannels() {
    assertEquals(0, channels(new ChannelDivision(Layout.defaults(), true, 2), 0));
  }

  @ParameterizedTest
  @EnumSource(Protocol.class)
  void channelsPartitionTheElements(Protocol protocol) {
    for (int channels = 1; channels <= 64; channels++) {
      Layout layout = Layout.defaults().withChannels(channels).withProtocol(protocol);
      ChannelDivision division = new ChannelDivision(layout, true, 3);
      for (long count = 1; count < 40_000_000; count += 1 + count / 3) {
        division.divide(count, 1);
        assertTrue(division.channels() >= 1 && division.channels() <= channels);
        assertEquals(0, division.begin(0));
        for (int channel = 0; channel < division.channels(); channel++) {
          String where = "channel " + channel + " of " + channels + ", count " + count;
          assertTrue(division.begin(channel) < division.end(channel), where);
          if (channel > 0) {
            assertEquals(division.end(channel - 1), division.begin(channel), where);
          }
        }
        assertEquals(count, division.end(division.channels() - 1));
      }
    }
  }
}
