package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.Graph;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.cuda.CudaDevices;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.nccl.NcclBackend;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * Tests that a device which the program does not use gets no CUDA context, which would occupy some
 * hundred megabytes of it. In a new thread device 0 is current.
 */
@OnStandIn
class ContextsTest {
  private static final int DEVICE = 5;
  private static final int NEXT_DEVICE = 6;

  private interface Body {
    void run() throws Exception;
  }

  @BeforeEach
  void forgetContexts() {
    StandIn.reset();
  }

  @Test
  void pinnedMemoryFreedOnAnotherThreadUsesItsOwnDevice() throws Exception {
    try (Backend backend = NcclBackend.open()) {
      Buffer[] made = new Buffer[1];
      onNewThread(
          () -> {
            CudaDevices.use(DEVICE);
            made[0] = backend.newPinnedBuffer(DataType.INT32, 16);
          });
      assertTrue(StandIn.hasContext(DEVICE));
      onNewThread(made[0]::close);
      assertFalse(StandIn.hasContext(0), "freeing used device 0");
    }
  }

  @Test
  void pinnedMemoryUsesADeviceThatIsInUseAlready() throws Exception {
    try (Backend backend = NcclBackend.open();
        Stream stream = backend.newStream(DEVICE)) {
      onNewThread(() -> backend.newPinnedBuffer(DataType.INT32, 16).close());
      assertTrue(stream.isOpen());
      assertFalse(StandIn.hasContext(0), "allocating used device 0");
    }
  }

  @Test
  void streamsEventsAndBuffersUseTheirOwnDevice() throws Exception {
    try (Backend backend = NcclBackend.open()) {
      Stream[] stream = new Stream[1];
      Buffer[] buffer = new Buffer[1];
      Event[] events = new Event[2];
      Graph[] graph = new Graph[1];
      onNewThread(() -> stream[0] = backend.newStream(DEVICE));
      onNewThread(() -> buffer[0] = backend.newBuffer(DEVICE, DataType.INT32, 4));
      onNewThread(() -> events[0] = backend.newEvent(DEVICE));
      onNewThread(() -> events[1] = backend.newEvent(DEVICE));
      onNewThread(() -> stream[0].record(events[0]));
      onNewThread(
          () -> buffer[0].copyFromAsync(MemorySegment.ofArray(new int[] {1, 2, 3, 4}), stream[0]));
      onNewThread(() -> stream[0].record(events[1]));
      int[] values = new int[4];
      onNewThread(() -> buffer[0].copyTo(MemorySegment.ofArray(values), stream[0]));
      assertArrayEquals(new int[] {1, 2, 3, 4}, values);
      onNewThread(() -> assertFalse(events[1].elapsedSince(events[0]).isNegative()));
      onNewThread(() -> graph[0] = Graph.capture(List.of(stream[0]), () -> {}).getFirst());
      onNewThread(() -> graph[0].launch(stream[0]));
      onNewThread(stream[0]::synchronize);
      onNewThread(graph[0]::close);
      onNewThread(events[0]::close);
      onNewThread(events[1]::close);
      onNewThread(buffer[0]::close);
      onNewThread(stream[0]::close);
      assertFalse(StandIn.hasContext(0), "something used device 0");
    }
  }

  @Test
  void threadThatOnlyLaunchesUsesTheDeviceOfItsRank() throws Exception {
    try (Backend backend = NcclBackend.open()) {
      List<Communicator> ranks = twoRanks(backend);
      List<Stream> streams = ranks.stream().map(Communicator::newStream).toList();
      List<Buffer> values = ranks.stream().map(rank -> rank.newBuffer(DataType.INT32, 1)).toList();
      for (int r = 0; r < 2; r++) {
        values.get(r).copyFromAsync(MemorySegment.ofArray(new int[] {3 + r}), streams.get(r));
      }
      for (int r = 0; r < 2; r++) {
        int rank = r;
        onNewThread(
            () -> {
              Buffer value = values.get(rank);
              ranks.get(rank).allReduce(value, value, ReduceOp.SUM, streams.get(rank));
              assertEquals(ranks.get(rank).device(), CudaDevices.current());
            });
      }
      for (int r = 0; r < 2; r++) {
        int[] sum = new int[1];
        values.get(r).copyTo(MemorySegment.ofArray(sum), streams.get(r));
        assertEquals(7, sum[0]);
      }
      assertFalse(StandIn.hasContext(0), "launching used device 0");
      close(values, ranks, streams);
    }
  }

  @Test
  void threadThatHasChosenADeviceKeepsIt() throws Exception {
    try (Backend backend = NcclBackend.open()) {
      List<Communicator> ranks = twoRanks(backend);
      List<Stream> streams = ranks.stream().map(Communicator::newStream).toList();
      List<Buffer> values = ranks.stream().map(rank -> rank.newBuffer(DataType.INT32, 1)).toList();
      for (int r = 0; r < 2; r++) {
        int rank = r;
        onNewThread(
            () -> {
              CudaDevices.use(NEXT_DEVICE);
              Buffer value = values.get(rank);
              ranks.get(rank).allReduce(value, value, ReduceOp.SUM, streams.get(rank));
              assertEquals(NEXT_DEVICE, CudaDevices.current());
            });
      }
      streams.forEach(Stream::synchronize);
      close(values, ranks, streams);
    }
  }

  private static List<Communicator> twoRanks(Backend backend) throws Exception {
    List<Communicator> ranks = backend.newCommunicators(DEVICE, NEXT_DEVICE);
    // NCCL and this thread may have used other devices: count from here.
    StandIn.reset();
    StandIn.connect(false); // The ranks call one after the other.
    onNewThread(() -> CudaDevices.use(DEVICE));
    onNewThread(() -> CudaDevices.use(NEXT_DEVICE));
    return ranks;
  }

  private static void close(List<Buffer> values, List<Communicator> ranks, List<Stream> streams) {
    values.forEach(Buffer::close);
    ranks.parallelStream().forEach(Communicator::close);
    streams.forEach(Stream::close);
  }

  private static void onNewThread(Body body) throws Exception {
    FutureTask<Void> task =
        new FutureTask<>(
            () -> {
              body.run();
              return null;
            });
    Thread.ofPlatform().daemon().start(task);
    task.get(40, TimeUnit.SECONDS);
  }
}
