package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Buffer;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.UnsupportedNcclVersionException;
import io.nccl4j.nccl.BufferRegistration;
import io.nccl4j.nccl.CommunicatorProperties;
import io.nccl4j.nccl.MemoryStatistics;
import io.nccl4j.nccl.NcclBackend;
import io.nccl4j.nccl.NcclCommunicator;
import io.nccl4j.nccl.NcclParameters;
import io.nccl4j.nccl.WaitSignal;
import io.nccl4j.nccl.Window;
import io.nccl4j.nccl.WindowOption;
import io.nccl4j.nccl.WindowsUnsupportedException;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.TestExecutionExceptionHandler;
import org.junit.jupiter.api.function.Executable;
import org.opentest4j.TestAbortedException;

/**
 * What NCCL alone has: registered memory, windows, one-sided operations, suspension, statistics,
 * estimates and parameters, with two ranks or one.
 */
@ExtendWith(NcclFeaturesContract.SkipUnsupported.class)
abstract class NcclFeaturesContract {
  private static final int PAGE_INTS = 1024;

  abstract BackendUnderTest underTest();

  /** Skips a test of what this release of NCCL, or this machine, does not have. */
  static final class SkipUnsupported implements TestExecutionExceptionHandler {
    @Override
    public void handleTestExecutionException(ExtensionContext context, Throwable failure)
        throws Throwable {
      throw failure instanceof UnsupportedNcclVersionException
              || failure instanceof WindowsUnsupportedException
          ? new TestAbortedException(failure.getMessage(), failure)
          : failure;
    }
  }

  private Ranks ranks() {
    return Ranks.of(underTest(), Math.min(2, underTest().maxRanks()));
  }

  private static NcclCommunicator nccl(Rank rank) {
    return NcclCommunicator.of(rank.comm());
  }

  /** Returns memory for registrations and windows, filled with a value. */
  private static Buffer registrable(Rank rank, int value) {
    Buffer buffer =
        NcclBackend.of(rank.comm().backend())
            .newRegistrableBuffer(rank.comm().device(), DataType.INT32, PAGE_INTS);
    int[] values = new int[PAGE_INTS];
    Arrays.fill(values, value);
    buffer.copyFromAsync(MemorySegment.ofArray(values), rank.stream());
    // The peer writes once a window is registered, whatever this stream still does.
    rank.stream().synchronize();
    return buffer;
  }

  private static void assertSummed(Rank rank, Buffer buffer) {
    rank.comm().allReduce(buffer, buffer, ReduceOp.SUM, rank.stream());
    int[] expected = new int[PAGE_INTS];
    Arrays.fill(expected, rank.size() * (rank.size() + 1) / 2);
    assertArrayEquals(expected, rank.downloadInts(buffer));
  }

  @Test
  void registeredMemoryIsReduced() {
    try (Ranks ranks = ranks()) {
      ranks.each(
          rank -> {
            try (Buffer buffer = registrable(rank, rank.rank() + 1);
                BufferRegistration registration = nccl(rank).register(buffer)) {
              assertSummed(rank, buffer);
              assertTrue(registration.isOpen());
            }
          });
    }
  }

  @Test
  void windowIsReduced() {
    try (Ranks ranks = ranks()) {
      ranks.each(
          rank -> {
            try (Buffer buffer = registrable(rank, rank.rank() + 1);
                Window window = nccl(rank).registerWindow(buffer, WindowOption.SYMMETRIC)) {
              assertSummed(rank, buffer);
              assertTrue(window.isOpen());
            }
          });
    }
  }

  @Test
  void putAndSignalArriveAtThePeer() {
    try (Ranks ranks = ranks()) {
      assumeTrue(ranks.size() == 2, "needs two ranks");
      ranks.each(
          rank -> {
            int peer = 1 - rank.rank();
            try (Buffer buffer = registrable(rank, rank.rank() + 1);
                Window window = nccl(rank).registerWindow(buffer, WindowOption.SYMMETRIC)) {
              nccl(rank).putSignal(buffer.slice(0, 3), peer, window, 100, rank.stream());
              nccl(rank).signal(peer, rank.stream());
              nccl(rank).waitSignal(List.of(new WaitSignal(peer, 2)), rank.stream());
              int[] expected = new int[PAGE_INTS];
              Arrays.fill(expected, rank.rank() + 1);
              Arrays.fill(expected, 100, 103, peer + 1);
              assertArrayEquals(expected, rank.downloadInts(buffer));
            }
          });
    }
  }

  @Test
  void resumedCommunicatorReduces() {
    try (Ranks ranks = ranks()) {
      ranks.each(
          rank -> {
            Buffer values = rank.ints(rank.rank() + 1);
            rank.comm().allReduce(values, values, ReduceOp.SUM, rank.stream());
            nccl(rank).suspend();
            assertTrue(nccl(rank).isSuspended());
            assertTrue(nccl(rank).memoryStatistics().suspended());
            nccl(rank).resume();
            assertFalse(nccl(rank).isSuspended());
            rank.comm().allReduce(values, values, ReduceOp.SUM, rank.stream());
            int sum = rank.size() * (rank.size() + 1) / 2;
            assertArrayEquals(new int[] {rank.size() * sum}, rank.downloadInts(values));
          });
    }
  }

  @Test
  void propertiesAreThoseOfTheDevices() {
    try (Ranks ranks = ranks()) {
      ranks.each(
          rank -> {
            CommunicatorProperties properties = nccl(rank).properties();
            assertTrue(properties.nvmlDevice() >= 0, properties::toString);
            int teams = properties.memoryTeams().orElse(1);
            assertTrue(teams >= 1 && teams <= rank.size(), properties::toString);
          });
    }
  }

  @Test
  void addressesOfAPeersWindowAreContiguous() {
    try (Ranks ranks = ranks()) {
      ranks.each(
          rank -> {
            try (Buffer buffer = registrable(rank, 1);
                Window window = nccl(rank).registerWindow(buffer, WindowOption.SYMMETRIC)) {
              int peer = rank.size() - 1 - rank.rank();
              long address = window.peerAddress(peer, 0).orElseThrow();
              assertEquals(address + 12, window.peerAddress(peer, 12).orElseThrow());
              String over = "offset is 4096; it must be from 0 to 4095";
              assertEquals(over, refusal(() -> window.peerAddress(peer, 4096)));
              assertEquals(over, refusal(() -> window.multicastAddress(4096)));
              assertEquals(
                  "peer is %d; it must be from 0 to %d".formatted(rank.size(), rank.size() - 1),
                  refusal(() -> window.peerAddress(rank.size(), 0)));
              rank.comm().barrier(rank.stream()); // a peer may still ask for this rank's
              rank.stream().synchronize();
            }
          });
    }
  }

  private static String refusal(Executable call) {
    return assertThrows(IllegalArgumentException.class, call).getMessage();
  }

  @Test
  void memoryStatisticsAddUp() {
    try (Ranks ranks = ranks()) {
      ranks.each(
          rank -> {
            MemoryStatistics memory = nccl(rank).memoryStatistics();
            assertEquals(memory.suspendableBytes() + memory.persistentBytes(), memory.totalBytes());
            assertFalse(memory.suspended());
          });
    }
  }

  @Test
  void allReduceHasAnEstimate() {
    try (Ranks ranks = ranks()) {
      assumeTrue(ranks.size() == 2, "needs two ranks");
      ranks.each(
          rank -> {
            Buffer values = rank.ints(1, 2, 3);
            Optional<Duration> estimate =
                NcclBackend.of(rank.comm().backend())
                    .estimate(
                        () -> rank.comm().allReduce(values, values, ReduceOp.SUM, rank.stream()));
            assertTrue(estimate.orElseThrow().isPositive(), estimate::toString);
            assertArrayEquals(new int[] {1, 2, 3}, rank.downloadInts(values), "it did not run");
          });
    }
  }

  @Test
  void parametersAreRead() {
    try (Ranks ranks = ranks()) {
      NcclParameters parameters = NcclBackend.of(ranks.backend()).parameters();
      assertTrue(parameters.keys().contains("NCCL_DEBUG"), parameters.keys()::toString);
      for (String key : parameters.keys()) {
        assertTrue(parameters.bytes(key).length > 0, key);
      }
    }
  }
}
