package io.nccl4j.natives;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Buffer;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.cuda.CudaDevices;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * CUDA's current device and NCCL's group depth belong to a thread of the operating system, from
 * which a virtual thread can move to another one.
 */
@OnStandIn
class VirtualThreadsTest {
  @BeforeEach
  void reset() {
    StandIn.reset();
  }

  @Test
  void operationsStreamsAndDevicesRefuseVirtualThreads() throws Exception {
    try (Pair pair = new Pair(CommunicatorConfig.defaults());
        Buffer value = pair.rank(0).allocate(DataType.INT32, 1)) {
      Stream stream = pair.stream(0);
      long launched = StandIn.calls("ncclAllReduce");
      refused("ncclAllReduce", () -> pair.rank(0).allReduce(value, value, ReduceOp.SUM, stream));
      refused(
          "ncclGroupStart",
          () -> Group.run(() -> pair.rank(0).allReduce(value, value, ReduceOp.SUM, stream)));
      refused("cudaGetDevice", stream::isComplete);
      refused("cudaGetDevice", stream::synchronize);
      refused("cudaGetDevice", () -> value.fill((byte) 1, stream));
      refused("cudaSetDevice", () -> CudaDevices.use(0));
      assertEquals(launched, StandIn.calls("ncclAllReduce"));
    }
  }

  @Test
  void callThatIsRepeatedIsRefusedOnAVirtualThreadToo() throws Exception {
    try (Pair pair = new Pair(CommunicatorConfig.defaults());
        Buffer first = pair.rank(0).allocate(DataType.INT32, 1);
        Buffer second = pair.rank(1).allocate(DataType.INT32, 1)) {
      for (int i = 0; i < 5; i++) {
        pair.rank(0).allReduce(first, first, ReduceOp.SUM, pair.stream(0));
        Pair.onOwnThread(
            () -> pair.rank(1).allReduce(second, second, ReduceOp.SUM, pair.stream(1)));
      }
      refused(
          "ncclAllReduce",
          () -> pair.rank(0).allReduce(first, first, ReduceOp.SUM, pair.stream(0)));
      pair.rank(0).allReduce(first, first, ReduceOp.SUM, pair.stream(0));
      Pair.onOwnThread(() -> pair.rank(1).allReduce(second, second, ReduceOp.SUM, pair.stream(1)));
      pair.stream(0).synchronize();
      pair.stream(1).synchronize();
    }
  }

  private static void refused(String function, Runnable call) throws Exception {
    CompletableFuture<RuntimeException> answer = new CompletableFuture<>();
    Thread.ofVirtual()
        .start(
            () -> {
              try {
                call.run();
                answer.complete(null);
              } catch (RuntimeException failure) {
                answer.complete(failure);
              }
            });
    RuntimeException refusal = answer.get(20, TimeUnit.SECONDS);
    assertEquals(
        IllegalStateException.class, refusal == null ? null : refusal.getClass(), function);
    assertTrue(refusal.getMessage().contains(function), refusal.getMessage());
    assertTrue(refusal.getMessage().contains("platform thread"), refusal.getMessage());
  }
}
