package io.nccl4j.verification;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CudaException;
import io.nccl4j.DataType;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.Nccl4jException;
import io.nccl4j.NcclException;
import io.nccl4j.NcclInvalidUsageException;
import io.nccl4j.NcclResult;
import io.nccl4j.Operation;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.Seed;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.random.RandomGenerator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Verifies the stand-in, which has no profiler here, so that sums of floats are compared within a
 * bound. Its inputs are small integers, whose sums are exact in every order.
 */
@OnStandIn
@Timeout(120)
class VerificationTest {
  private static final int RANKS = 3;
  private static final int COUNT = 1000;

  private final Backend backend = Backend.nccl();
  private final Queue<Finding> findings = new ConcurrentLinkedQueue<>();
  private final CyclicBarrier barrier = new CyclicBarrier(RANKS);

  /** A rank whose communicator is verified. */
  private record Rank(Communicator comm, Verification verification, Stream stream) {
    Buffer newBuffer(DataType type, long count) {
      Buffer buffer = comm.newBuffer(type, count);
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment values = arena.allocate(buffer.byteSize(), 8);
        for (long i = 0; i < count; i++) {
          type.set(values, i, (double) (comm.rank() + i % 4));
        }
        buffer.copyFromAsync(values, stream);
        stream.synchronize();
      }
      return buffer;
    }
  }

  @AfterEach
  void close() {
    StandIn.reset();
    backend.close();
  }

  /** Runs a body for each rank, verifying one in so many collectives. */
  private void verify(int oneIn, Consumer<Rank> body) {
    backend.runRanks(
        RANKS,
        comm -> {
          try (Stream stream = comm.newStream();
              Verification verification = Verification.sampling(comm, oneIn, findings::add)) {
            body.accept(new Rank(comm, verification, stream));
            stream.synchronize();
          }
        });
  }

  private static void awaitCheck(Rank rank, CyclicBarrier barrier) {
    rank.stream.synchronize();
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (!rank.verification.idle()) {
      assertTrue(System.nanoTime() < deadline, "the check does not end");
      Thread.onSpinWait();
    }
    meet(barrier);
  }

  private static void meet(CyclicBarrier barrier) {
    try {
      barrier.await(60, TimeUnit.SECONDS);
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  private static VerificationCounts counts(
      long bits, long bounded, long found, Map<SkipReason, Long> skipped) {
    return new VerificationCounts(bits, bounded, found, skipped);
  }

  @ParameterizedTest
  @EnumSource(DataType.class)
  void rightResultsHaveNoFindings(DataType type) {
    verify(
        1,
        rank -> {
          Communicator comm = rank.comm;
          int own = comm.rank();
          try (Buffer all = rank.newBuffer(type, RANKS * COUNT);
              Buffer one = rank.newBuffer(type, COUNT);
              Buffer other = rank.newBuffer(type, COUNT)) {
            Buffer slice = all.slice((long) own * COUNT, COUNT);
            List<Runnable> calls =
                List.of(
                    () -> comm.allReduce(one, other, ReduceOp.SUM, rank.stream),
                    () -> comm.allReduce(one, one, ReduceOp.MAX, rank.stream),
                    () -> comm.allReduce(other, other, ReduceOp.AVG, rank.stream),
                    () -> comm.reduceScatter(all, one, ReduceOp.SUM, rank.stream),
                    () -> comm.reduceScatter(all, slice, ReduceOp.SUM, rank.stream),
                    () -> comm.allGather(one, all, rank.stream),
                    () -> comm.allGather(slice, all, rank.stream));
            for (Runnable call : calls) {
              call.run();
              awaitCheck(rank, barrier);
            }
          }
          int bounded = type.floating() ? 4 : 0;
          assertEquals(counts(7 - bounded, bounded, 0, Map.of()), rank.verification.counts());
        });
    assertEquals(List.of(), List.copyOf(findings));
  }

  @Test
  void flippedBitOfIntegersIsNamed() {
    verify(
        1,
        rank -> {
          try (Buffer buffer = rank.newBuffer(DataType.INT32, COUNT)) {
            flip(rank, 5 * Integer.BYTES + 2, 3);
            rank.comm.allReduce(buffer, buffer, ReduceOp.SUM, rank.stream);
            awaitCheck(rank, barrier);
          }
        });
    Finding.Difference found = (Finding.Difference) only();
    assertEquals(Operation.ALL_REDUCE, found.operation());
    assertEquals(DataType.INT32, found.type());
    assertEquals(1, found.rank());
    assertEquals(5, found.element());
    assertEquals(1, found.elements());
    assertEquals(new TreeSet<>(Set.of(1)), found.ranks());
    // The ranks have 1 + rank in element 5.
    assertEquals("6 (0x6)", found.expected());
    assertEquals("524294 (0x80006)", found.actual());
    assertEquals(0, found.bound());
  }

  @Test
  void flippedBitOfFloatsIsNamedWithTheBound() {
    verify(
        1,
        rank -> {
          Communicator comm = rank.comm;
          try (Buffer all = rank.newBuffer(DataType.FLOAT32, RANKS * COUNT);
              Buffer own = rank.newBuffer(DataType.FLOAT32, COUNT)) {
            flip(rank, 6 * Float.BYTES + 3, 7); // the sign
            comm.reduceScatter(all, own, ReduceOp.SUM, rank.stream);
            awaitCheck(rank, barrier);
          }
        });
    Finding.Difference found = (Finding.Difference) only();
    assertEquals(Operation.REDUCE_SCATTER, found.operation());
    assertEquals(1, found.rank());
    assertEquals(6, found.element());
    assertEquals("9.0", found.expected());
    assertEquals("-9.0 (0xc1100000)", found.actual());
    assertEquals("unknown", found.order());
    assertEquals(-1, found.channel());
    assertEquals(2 * (RANKS + 1) * 0x1p-24 * 9, found.bound(), 1e-12);
    assertTrue(found.toString().contains("element 6 of rank 1 is -9.0"), found::toString);
  }

  @Test
  void flippedBitOfAnAllGatherIsNamed() {
    verify(
        1,
        rank -> {
          try (Buffer all = rank.newBuffer(DataType.BFLOAT16, RANKS * COUNT);
              Buffer own = rank.newBuffer(DataType.BFLOAT16, COUNT)) {
            flip(rank, 2L * (2 * COUNT + 1), 0);
            rank.comm.allGather(own, all, rank.stream);
            awaitCheck(rank, barrier);
          }
        });
    Finding.Difference found = (Finding.Difference) only();
    assertEquals(2 * COUNT + 1, found.element());
    assertEquals("3.0 (0x4040)", found.expected());
    assertEquals("3.015625 (0x4041)", found.actual());
  }

  private void flip(Rank rank, long byteIndex, int bit) {
    if (rank.comm.rank() == 0) {
      StandIn.flip(1, byteIndex, bit);
    }
    meet(barrier);
  }

  private Finding only() {
    assertEquals(1, findings.size(), findings::toString);
    return findings.element();
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void nonFiniteInputsAreNamed(boolean maximum) {
    verify(
        1,
        rank -> {
          try (Buffer buffer = rank.newBuffer(DataType.FLOAT32, COUNT)) {
            if (rank.comm.rank() == 2) {
              float[] special = {Float.NaN, 1, Float.NEGATIVE_INFINITY};
              buffer.slice(7, 3).copyFromAsync(special, rank.stream);
            }
            ReduceOp op = maximum ? ReduceOp.MAX : ReduceOp.SUM;
            rank.comm.allReduce(buffer, buffer, op, rank.stream);
            awaitCheck(rank, barrier);
          }
        });
    Finding.NonFiniteInput found = (Finding.NonFiniteInput) only();
    assertEquals(2, found.rank());
    assertEquals(7, found.element());
    assertTrue(Double.isNaN(found.value()));
    assertEquals(2, found.elements());
  }

  @Test
  void differentOperatorIsNamedOnEachRankAlthoughTheDeviceFails() {
    backend.runRanks(
        RANKS,
        comm -> {
          Stream stream = comm.newStream();
          Verification verification = Verification.sampling(comm, 1, findings::add);
          Rank rank = new Rank(comm, verification, stream);
          Buffer buffer = rank.newBuffer(DataType.INT32, COUNT);
          ReduceOp op = comm.rank() == 2 ? ReduceOp.MAX : ReduceOp.SUM;
          comm.allReduce(buffer, buffer, op, stream);
          // The stand-in fails the stream and the communicator.
          assertThrows(Nccl4jException.class, stream::synchronize);
          verification.close();
          comm.abort();
          closeAfterFailure(buffer);
          closeAfterFailure(stream);
        });
    assertEquals(RANKS, findings.size(), findings::toString);
    for (Finding finding : findings) {
      assertEquals(
          "collective number "
              + finding.number()
              + " differs between ranks: rank 0 called allReduce(count 1000, INT32, sum), rank 2 called allReduce(count 1000, INT32, max)",
          finding.toString());
    }
  }

  /** The stand-in's error stays in the stream. */
  private static void closeAfterFailure(AutoCloseable resource) {
    try {
      resource.close();
    } catch (CudaException known) {
      assertEquals(719, known.code());
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void checkThatARankHoldsUpEndsVerificationAndNotTheProgram() {
    CountDownLatch ended = new CountDownLatch(RANKS - 1);
    backend.runRanks(
        RANKS,
        comm -> {
          boolean late = comm.rank() == 1;
          Consumer<Finding> listener = finding -> awaitUninterruptibly(ended);
          try (Stream stream = comm.newStream();
              Verification verification =
                  Verification.sampling(comm, 1, listener, Duration.ofSeconds(3))) {
            Rank rank = new Rank(comm, verification, stream);
            try (Buffer buffer = rank.newBuffer(DataType.FLOAT32, COUNT)) {
              if (late) {
                // Its finding holds up the thread of its verification.
                buffer.slice(0, 1).copyFromAsync(new float[] {Float.NaN}, stream);
              }
              comm.allReduce(buffer, buffer, ReduceOp.MAX, stream);
              stream.synchronize();
              if (!late) {
                awaitLate(verification);
                ended.countDown();
              }
              awaitUninterruptibly(ended);
              awaitLate(verification);
              long before = verification.counts().skipped().get(SkipReason.LATE);
              comm.allReduce(buffer, buffer, ReduceOp.MAX, stream);
              float[] values = new float[COUNT];
              buffer.copyTo(values, stream);
              assertEquals(3, values[1]);
              assertEquals(before + 1, verification.counts().skipped().get(SkipReason.LATE));
            }
          }
        });
  }

  private static void awaitLate(Verification verification) {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
    while (!verification.counts().skipped().containsKey(SkipReason.LATE)) {
      assertTrue(System.nanoTime() < deadline, () -> verification.counts().toString());
      Thread.onSpinWait();
    }
  }

  private static void awaitUninterruptibly(CountDownLatch latch) {
    try {
      assertTrue(latch.await(30, TimeUnit.SECONDS));
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void lateRankIsWaitedFor() {
    verify(
        1,
        rank -> {
          try (Buffer buffer = rank.newBuffer(DataType.INT32, COUNT)) {
            if (rank.comm.rank() == 1) {
              pause(500);
            }
            rank.comm.allReduce(buffer, buffer, ReduceOp.SUM, rank.stream);
            awaitCheck(rank, barrier);
          }
          assertEquals(counts(1, 0, 0, Map.of()), rank.verification.counts());
        });
  }

  private static void pause(int milliseconds) {
    try {
      Thread.sleep(milliseconds);
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void whatCannotBeCheckedIsCountedByReason() {
    verify(
        1,
        rank -> {
          Communicator comm = rank.comm;
          long large = Sampler.MOST_BYTES / 2 / Float.BYTES + 1;
          try (Buffer tooLarge = rank.newBuffer(DataType.FLOAT32, large);
              Buffer largest = tooLarge.slice(0, large - 1);
              Buffer one = rank.newBuffer(DataType.FLOAT32, COUNT);
              Buffer two = rank.newBuffer(DataType.FLOAT32, COUNT);
              ReduceOp.PreMulSum half = comm.newPreMulSum(DataType.FLOAT32, 0.5)) {
            comm.allReduce(tooLarge, tooLarge, ReduceOp.MAX, rank.stream);
            awaitCheck(rank, barrier);
            comm.allReduce(largest, largest, ReduceOp.MAX, rank.stream);
            awaitCheck(rank, barrier);
            comm.allReduce(one, one, half, rank.stream);
            awaitCheck(rank, barrier);
            comm.allReduce(one, one, ReduceOp.PROD, rank.stream);
            awaitCheck(rank, barrier);
            Group.run(
                () -> {
                  comm.allReduce(one, one, ReduceOp.MAX, rank.stream);
                  comm.broadcast(two, two, 0, rank.stream);
                });
            awaitCheck(rank, barrier);
            try (Graph graph =
                Graph.capture(
                    rank.stream, () -> comm.allReduce(one, one, ReduceOp.MAX, rank.stream))) {
              graph.launch(rank.stream);
              awaitCheck(rank, barrier);
            }
          }
          assertEquals(
              counts(
                  1,
                  0,
                  0,
                  Map.of(
                      SkipReason.TOO_LARGE, 1L,
                      SkipReason.OPERATOR, 2L,
                      SkipReason.GROUPED, 1L,
                      SkipReason.CAPTURED, 1L)),
              rank.verification.counts());
        });
  }

  @Test
  void callsThatNcclRefusesAreNotChecked() {
    verify(
        1,
        rank -> {
          try (Buffer buffer = rank.newBuffer(DataType.INT32, COUNT)) {
            // The number of a call that was rejected is that of the next one.
            fail(rank, NcclResult.INVALID_USAGE);
            assertThrows(
                NcclInvalidUsageException.class,
                () -> rank.comm.allReduce(buffer, buffer, ReduceOp.SUM, rank.stream));
            awaitCheck(rank, barrier);
            fail(rank, NcclResult.INTERNAL_ERROR);
            assertThrows(
                NcclException.class,
                () -> rank.comm.allReduce(buffer, buffer, ReduceOp.SUM, rank.stream));
            awaitCheck(rank, barrier);
            fail(rank, NcclResult.SUCCESS);
            rank.comm.allReduce(buffer, buffer, ReduceOp.SUM, rank.stream);
            awaitCheck(rank, barrier);
          }
          assertEquals(counts(1, 0, 0, Map.of(SkipReason.FAILED, 1L)), rank.verification.counts());
        });
  }

  /** Makes all-reduces return a result. */
  private void fail(Rank rank, NcclResult result) {
    if (rank.comm.rank() == 0) {
      StandIn.reset();
      if (result != NcclResult.SUCCESS) {
        StandIn.fail("ncclAllReduce", result.code(), 0);
      }
    }
    meet(barrier);
  }

  @Test
  void rankThatAloneIsBusyDoesNotHoldUpTheOthers() {
    CountDownLatch passed = new CountDownLatch(1);
    backend.runRanks(
        RANKS,
        comm -> {
          // Rank 1 stays busy with its finding when the other ranks have finished the check.
          Consumer<Finding> listener = finding -> awaitUninterruptibly(passed);
          try (Stream stream = comm.newStream();
              Verification verification = Verification.sampling(comm, 1, listener)) {
            Rank rank = new Rank(comm, verification, stream);
            try (Buffer buffer = rank.newBuffer(DataType.INT32, COUNT)) {
              flip(rank, 0, 0);
              comm.allReduce(buffer, buffer, ReduceOp.MAX, stream);
              stream.synchronize();
              while (comm.rank() != 1 && !verification.idle()) {
                Thread.onSpinWait();
              }
              meet(barrier);
              comm.allReduce(buffer, buffer, ReduceOp.MAX, stream);
              meet(barrier);
              passed.countDown();
              awaitCheck(rank, barrier);
              comm.allReduce(buffer, buffer, ReduceOp.MAX, stream);
              awaitCheck(rank, barrier);
            }
            long found = comm.rank() == 1 ? 1 : 0;
            assertEquals(counts(2, 0, found, Map.of(SkipReason.BUSY, 1L)), verification.counts());
          }
        });
  }

  @Test
  void ranksThatLaunchAtTheirOwnPaceSkipTheSame() {
    int calls = 400;
    Set<Long> checked = new TreeSet<>();
    verify(
        1,
        rank -> {
          RandomGenerator random = Seed.random("rank " + rank.comm.rank());
          try (Buffer buffer = rank.newBuffer(DataType.INT32, COUNT)) {
            for (int i = 0; i < calls; i++) {
              rank.comm.allReduce(buffer, buffer, ReduceOp.SUM, rank.stream);
              if (random.nextInt(20) == 0) {
                pause(random.nextInt(10));
              }
            }
            awaitCheck(rank, barrier);
            VerificationCounts counts = rank.verification.counts();
            long busy = counts.skipped().getOrDefault(SkipReason.BUSY, 0L);
            assertEquals(calls, counts.bits() + busy);
            synchronized (checked) {
              checked.add(counts.bits());
            }
          }
        });
    assertEquals(1, checked.size(), checked::toString);
    assertTrue(checked.iterator().next() > 0);
    assertEquals(List.of(), List.copyOf(findings));
  }

  @Test
  void aboutOneInSoManyIsChosenTheSameOnEachRank() {
    Set<Long> checked = new TreeSet<>();
    verify(
        8,
        rank -> {
          try (Buffer buffer = rank.newBuffer(DataType.INT32, 1)) {
            for (int i = 0; i < 200; i++) {
              rank.comm.allReduce(buffer, buffer, ReduceOp.SUM, rank.stream);
              awaitCheck(rank, barrier);
            }
          }
          VerificationCounts counts = rank.verification.counts();
          assertEquals(Map.of(), counts.skipped());
          synchronized (checked) {
            checked.add(counts.bits());
          }
        });
    assertEquals(1, checked.size(), checked::toString);
    long bits = checked.iterator().next();
    assertTrue(bits > 10 && bits < 50, () -> bits + " of 200");
  }

  @Test
  void childOfASplitIsVerifiedOnItsOwn() {
    backend.runRanks(
        RANKS,
        parent -> {
          try (Communicator child = parent.split(parent.rank() == 0 ? 0 : 1, -parent.rank());
              Stream stream = child.newStream();
              Verification verification = Verification.sampling(child, 1, findings::add)) {
            Rank rank = new Rank(child, verification, stream);
            try (Buffer buffer = rank.newBuffer(DataType.INT32, COUNT)) {
              flip(rank, parent);
              child.allReduce(buffer, buffer, ReduceOp.SUM, stream);
              awaitCheck(rank, barrier);
              assertEquals(1, verification.counts().bits());
            }
          }
        });
    Finding.Difference found = (Finding.Difference) only();
    assertEquals(1, found.rank());
    assertEquals("3 (0x3)", found.actual());
    assertEquals("1 (0x1)", found.expected());
  }

  private void flip(Rank rank, Communicator parent) {
    if (rank.comm.rank() == 0 && parent.rank() == 2) {
      StandIn.flip(1, 0, 1); // rank 1 exists in the child of two ranks only
    }
    meet(barrier);
  }

  @Test
  void closingFinishesTheCheckInFlight() {
    StandIn.kernelTime(TimeUnit.MILLISECONDS.toNanos(300));
    backend.runRanks(
        RANKS,
        comm -> {
          try (Stream stream = comm.newStream()) {
            Verification verification = Verification.sampling(comm, 1, findings::add);
            Rank rank = new Rank(comm, verification, stream);
            try (Buffer buffer = rank.newBuffer(DataType.INT32, COUNT)) {
              comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
              verification.close();
              assertEquals(counts(1, 0, 0, Map.of()), verification.counts());
              verification.close();
              comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
              stream.synchronize();
              assertEquals(1, verification.counts().bits());
            }
          }
        });
  }

  @Test
  void failingListenerChangesNothing() {
    backend.runRanks(
        RANKS,
        comm -> {
          Consumer<Finding> failing =
              finding -> {
                throw new IllegalStateException("a listener that fails");
              };
          try (Stream stream = comm.newStream();
              Verification verification = Verification.sampling(comm, 1, failing)) {
            Rank rank = new Rank(comm, verification, stream);
            try (Buffer buffer = rank.newBuffer(DataType.INT32, COUNT)) {
              for (int i = 0; i < 2; i++) {
                flip(rank, 0, 0);
                comm.allReduce(buffer, buffer, ReduceOp.SUM, stream);
                awaitCheck(rank, barrier);
              }
            }
            long found = comm.rank() == 1 ? 2 : 0;
            assertEquals(counts(2, 0, found, Map.of()), verification.counts());
          }
        });
  }

  @Test
  void wrongArgumentsAreRefused() {
    verify(
        1,
        rank -> {
          assertThrows(IllegalArgumentException.class, () -> Verification.sampling(rank.comm, 0));
          IllegalStateException second =
              assertThrows(IllegalStateException.class, () -> Verification.sampling(rank.comm, 2));
          assertTrue(second.getMessage().contains("already"), second::getMessage);
        });
    backend.runRanks(
        RANKS,
        comm -> {
          IllegalArgumentException different =
              assertThrows(
                  IllegalArgumentException.class,
                  () -> Verification.sampling(comm, comm.rank() == 0 ? 2 : 3));
          assertTrue(different.getMessage().startsWith("oneIn is "), different::getMessage);
        });
    try (Backend reference = Backend.reference(1);
        Communicator comm = reference.newCommunicator(reference.newUniqueId(), 1, 0)) {
      assertThrows(IllegalArgumentException.class, () -> Verification.sampling(comm, 1));
    }
  }

  @Test
  void copyOfTheInputIsThatBeforeAnOperationInPlace() {
    verify(
        1,
        rank -> {
          int[] values = new int[COUNT];
          Arrays.fill(values, 1);
          try (Buffer buffer = rank.comm.newBuffer(DataType.INT32, COUNT)) {
            buffer.copyFromAsync(values, rank.stream);
            for (int i = 0; i < 3; i++) {
              rank.comm.allReduce(buffer, buffer, ReduceOp.SUM, rank.stream);
              awaitCheck(rank, barrier);
            }
            buffer.copyTo(values, rank.stream);
          }
          int[] expected = new int[COUNT];
          Arrays.fill(expected, 27);
          assertArrayEquals(expected, values);
          assertEquals(counts(3, 0, 0, Map.of()), rank.verification.counts());
        });
  }
}
