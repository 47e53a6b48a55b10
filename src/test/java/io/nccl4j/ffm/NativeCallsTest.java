package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.NcclResult;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bindings.cudart.cudart_h;
import io.nccl4j.bindings.nccl.nccl_h;
import io.nccl4j.cuda.CudaStream;
import io.nccl4j.fixtures.libraries.OnStandIn;
import io.nccl4j.fixtures.libraries.StandIn;
import io.nccl4j.nccl.NcclCommunicator;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Tests the number of native calls of the NCCL backend; the stand-in counts them. */
@OnStandIn
class NativeCallsTest {
  @BeforeEach
  void reset() {
    StandIn.reset();
  }

  @Test
  void groupOf64AllReducesMakes66Calls() {
    try (Backend backend = Backend.nccl();
        Communicator comm =
            backend.newCommunicator(backend.newUniqueId(), 1, 0, CommunicatorConfig.defaults());
        Stream stream = comm.newStream();
        Buffer values = comm.newBuffer(DataType.INT32, 64)) {
      values.fill((byte) 1, stream);
      Group.run(
          () -> {
            for (int i = 0; i < 64; i++) {
              Buffer value = values.slice(i, 1);
              comm.allReduce(value, value, ReduceOp.SUM, stream);
            }
          });
      stream.synchronize();
      assertEquals(64, StandIn.calls("ncclAllReduce"));
      assertEquals(1, StandIn.calls("ncclGroupStart"));
      assertEquals(1, StandIn.calls("ncclGroupEnd"));
    }
  }

  @Test
  void barrierMemoryIsAllocatedOnceAndEndsWithCommunicator() {
    long memory = StandIn.live("memory");
    try (Backend backend = Backend.nccl();
        Stream stream = backend.newStream(0)) {
      Communicator closed = backend.newCommunicator(backend.newUniqueId(), 1, 0);
      Communicator aborted = backend.newCommunicator(backend.newUniqueId(), 1, 0);
      for (Communicator comm : List.of(closed, aborted, closed, aborted)) {
        comm.barrier(stream);
      }
      stream.synchronize();
      assertEquals(memory + 2, StandIn.live("memory"));
      closed.close();
      aborted.abort();
      assertEquals(memory, StandIn.live("memory"));
    }
  }

  @Test
  void streamHasTheRequestedPriority() {
    try (Backend backend = Backend.nccl();
        Stream normal = backend.newStream(0);
        Stream high = backend.newStream(0, Stream.Priority.HIGH)) {
      assertEquals(0, priority(normal));
      assertEquals(-5, priority(high), "the stand-in's highest");
    }
  }

  private static int priority(Stream stream) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment handle = MemorySegment.ofAddress(CudaStream.of(stream).address());
      MemorySegment priority = arena.allocate(ValueLayout.JAVA_INT);
      assertEquals(0, cudart_h.cudaStreamGetPriority(handle, priority));
      return priority.get(ValueLayout.JAVA_INT, 0);
    }
  }

  @Test
  void rankSizeAndDeviceAreQueriedOnce() {
    try (Backend backend = Backend.nccl();
        Communicator comm =
            backend.newCommunicator(backend.newUniqueId(), 1, 0, CommunicatorConfig.defaults())) {
      List<String> queries = List.of("ncclCommUserRank", "ncclCommCount", "ncclCommCuDevice");
      for (int i = 0; i < 3; i++) {
        assertEquals(List.of(0, 1, 0), List.of(comm.rank(), comm.size(), comm.device()));
      }
      queries.forEach(query -> assertEquals(1, StandIn.calls(query), query));
    }
  }

  @Test
  void callNativePassesTheCommunicator() {
    Backend backend = Backend.nccl();
    Communicator comm = backend.newCommunicator(backend.newUniqueId(), 1, 0);
    NcclCommunicator nccl = NcclCommunicator.of(comm);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment count = arena.allocate(ValueLayout.JAVA_INT);
      nccl.callNative("ncclCommCount", pointer -> nccl_h.ncclCommCount(pointer, count));
      assertEquals(1, count.get(ValueLayout.JAVA_INT, 0));
      NcclException failure =
          assertThrows(
              NcclException.class,
              () ->
                  nccl.callNative(
                      "ncclCommCount",
                      pointer -> nccl_h.ncclCommCount(pointer, MemorySegment.NULL)));
      assertEquals(NcclResult.INVALID_ARGUMENT, failure.result());
      IllegalStateException own = new IllegalStateException("own");
      assertSame(
          own,
          assertThrows(
              IllegalStateException.class,
              () ->
                  nccl.callNative(
                      "own",
                      pointer -> {
                        throw own;
                      })));
      nccl.callNative("ncclCommCount", pointer -> nccl_h.ncclCommCount(pointer, count));
    } finally {
      comm.close();
      backend.close();
    }
    assertThrows(IllegalStateException.class, () -> nccl.callNative("closed", pointer -> 0));
  }
}
