package io.nccl4j.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorAbortedException;
import io.nccl4j.DataType;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/**
 * Repeated calls. A backend may cache a validated call, but a repetition must still notice that an
 * argument has been closed, or that a group or capture has begun.
 */
abstract class RepeatedCallsContract {
  abstract BackendUnderTest underTest();

  private int fewRanks() {
    return Math.min(2, underTest().maxRanks());
  }

  /** Makes the same call three times and waits for it. */
  private static void repeat(Rank rank, Buffer send, Buffer recv, Stream stream) {
    for (int i = 0; i < 3; i++) {
      rank.comm().allReduce(send, recv, ReduceOp.SUM, stream);
    }
    stream.synchronize();
  }

  private static String refusal(Executable call) {
    return assertThrows(IllegalStateException.class, call).getMessage();
  }

  @Test
  void callWithOtherArgumentsIsCheckedAnew() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      int n = ranks.size();
      ranks.each(
          rank -> {
            Buffer send = rank.ints(rank.rank(), 7);
            Buffer sum = rank.allocate(DataType.INT32, 2);
            Buffer max = rank.allocate(DataType.INT32, 2);
            for (int i = 0; i < 3; i++) {
              rank.comm().allReduce(send, sum, ReduceOp.SUM, rank.stream());
              rank.comm().allReduce(send, max, ReduceOp.MAX, rank.stream());
            }
            assertArrayEquals(new int[] {n * (n - 1) / 2, 7 * n}, rank.downloadInts(sum));
            assertArrayEquals(new int[] {n - 1, 7}, rank.downloadInts(max));
            Buffer three = rank.allocate(DataType.INT32, 3);
            assertThrows(
                IllegalArgumentException.class,
                () -> rank.comm().allReduce(send, three, ReduceOp.SUM, rank.stream()));
          });
    }
  }

  @Test
  void repeatedCallWithClosedBufferIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            Buffer send = rank.comm().newBuffer(DataType.INT32, 4);
            Buffer recv = rank.comm().newBuffer(DataType.INT32, 4);
            Buffer recvPart = recv.slice(0, 2);
            Buffer sendPart = send.slice(0, 2);
            repeat(rank, send, recv, rank.stream());
            repeat(rank, sendPart, recvPart, rank.stream());
            recv.close();
            assertEquals(
                "recv is closed: " + recv,
                refusal(() -> rank.comm().allReduce(send, recv, ReduceOp.SUM, rank.stream())));
            assertEquals(
                "recv is closed: " + recvPart,
                refusal(
                    () -> rank.comm().allReduce(sendPart, recvPart, ReduceOp.SUM, rank.stream())));
            send.close();
            assertEquals(
                "send is closed: " + send,
                refusal(() -> rank.comm().allReduce(send, recv, ReduceOp.SUM, rank.stream())));
          });
    }
  }

  @Test
  void repeatedCallWithClosedStreamIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(1, 2);
            Stream stream = rank.comm().newStream();
            rank.stream().synchronize();
            repeat(rank, value, value, stream);
            stream.close();
            assertEquals(
                "stream is closed: " + stream,
                refusal(() -> rank.comm().allReduce(value, value, ReduceOp.SUM, stream)));
          });
    }
  }

  @Test
  void repeatedCallOnAbortedCommunicatorIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      ranks.each(
          rank -> {
            Buffer value = rank.ints(1, 2);
            repeat(rank, value, value, rank.stream());
          });
      ranks.inOneThread(
          rank -> {
            Communicator comm = rank.comm();
            try (Buffer value = comm.newBuffer(DataType.INT32, 2)) {
              comm.abort();
              assertEquals(
                  "aborted: " + comm,
                  refusal(() -> comm.allReduce(value, value, ReduceOp.SUM, rank.stream())));
            }
          });
    }
  }

  @Test
  void repeatedCallAfterAbortIsRefusedAndAbortReported() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      Buffer[] values = new Buffer[ranks.size()];
      ranks.each(
          rank -> {
            values[rank.rank()] = rank.comm().newBuffer(DataType.INT32, 2);
            values[rank.rank()].fill((byte) 0, rank.stream());
            repeat(rank, values[rank.rank()], values[rank.rank()], rank.stream());
          });
      ranks.inOneThread(
          rank -> {
            Buffer value = values[rank.rank()];
            rank.comm().abort();
            assertEquals(
                "aborted: " + rank.comm(),
                refusal(() -> rank.comm().allReduce(value, value, ReduceOp.SUM, rank.stream())));
            assertThrows(CommunicatorAbortedException.class, rank.stream()::synchronize);
            value.close();
          });
    }
  }

  @Test
  void repeatedCallIsGroupedAndCaptured() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      int n = ranks.size();
      ranks.each(
          rank -> {
            Buffer send = rank.ints(1, 2);
            Buffer recv = rank.allocate(DataType.INT32, 2);
            repeat(rank, send, recv, rank.stream());
            recv.fill((byte) 0, rank.stream());
            Group.run(
                () -> {
                  rank.comm().allReduce(send, recv, ReduceOp.SUM, rank.stream());
                  assertTrue(
                      assertThrows(IllegalStateException.class, rank.stream()::synchronize)
                          .getMessage()
                          .contains("group"));
                });
            assertArrayEquals(new int[] {n, 2 * n}, rank.downloadInts(recv));
            Graph graph =
                Graph.capture(
                        List.of(rank.stream()),
                        () -> rank.comm().allReduce(send, recv, ReduceOp.SUM, rank.stream()))
                    .getFirst();
            recv.fill((byte) 0, rank.stream());
            assertArrayEquals(new int[] {0, 0}, rank.downloadInts(recv), "captured, not run");
            graph.launch(rank.stream());
            assertArrayEquals(new int[] {n, 2 * n}, rank.downloadInts(recv));
            graph.close();
          });
    }
  }

  @Test
  void bufferClosedWithinRepeatedGroupIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      int n = ranks.size();
      ranks.each(
          rank -> {
            Buffer one = rank.ints(1);
            Buffer sum = rank.allocate(DataType.INT32, 1);
            Buffer root = rank.comm().newBuffer(DataType.INT32, 1);
            Runnable step =
                () -> {
                  rank.comm().allReduce(one, sum, ReduceOp.SUM, rank.stream());
                  rank.comm().broadcast(root, 0, rank.stream());
                };
            for (int i = 0; i < 3; i++) {
              Group.run(step);
            }
            assertArrayEquals(new int[] {n}, rank.downloadInts(sum));
            sum.fill((byte) 0, rank.stream());
            String refused =
                refusal(
                    () ->
                        Group.run(
                            () -> {
                              step.run();
                              root.close();
                            }));
            assertEquals("send is closed: " + root, refused);
            assertArrayEquals(new int[] {0}, rank.downloadInts(sum), "nothing was launched");
          });
    }
  }

  @Test
  void operatorClosedWithinGroupIsRefused() {
    try (Ranks ranks = Ranks.of(underTest(), fewRanks())) {
      int n = ranks.size();
      ranks.each(
          rank -> {
            Buffer one = rank.ints(1);
            Buffer sum = rank.ints(7);
            ReduceOp.PreMulSum twice = rank.comm().newPreMulSum(DataType.INT32, 2);
            Runnable step = () -> rank.comm().allReduce(one, sum, twice, rank.stream());
            Group.run(step);
            assertArrayEquals(new int[] {2 * n}, rank.downloadInts(sum));
            sum.fill((byte) 0, rank.stream());
            String refused =
                refusal(
                    () ->
                        Group.run(
                            () -> {
                              step.run();
                              twice.close();
                            }));
            assertEquals("op is closed: " + twice, refused);
            assertArrayEquals(new int[] {0}, rank.downloadInts(sum), "nothing was launched");
          });
    }
  }
}
