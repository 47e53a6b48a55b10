package io.nccl4j.ffm;

import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.libraries.OnStandIn;
import java.lang.management.ManagementFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Tests that enqueuing operations on NCCL allocates nothing on the Java heap. */
@OnStandIn
class EnqueueAllocationTest {
  private static final int CALLS = 5000;
  private static final int BETWEEN_WAITS = 50;
  private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

  private Backend backend;
  private Communicator comm;
  private Stream stream;
  private Buffer one;
  private Buffer another;

  @BeforeEach
  void open() {
    StandIn.reset();
    backend = Backend.nccl();
    comm = backend.newCommunicator(backend.newUniqueId(), 1, 0, CommunicatorConfig.defaults());
    stream = comm.newStream();
    one = comm.newBuffer(DataType.INT32, 4);
    another = comm.newBuffer(DataType.INT32, 4);
  }

  @AfterEach
  void close() {
    one.close();
    another.close();
    comm.close();
    stream.close();
    backend.close();
  }

  @Test
  void singleCallsAllocateNothing() {
    assertAllocatesNothing(this::callEach);
  }

  private void callEach() {
    comm.allReduce(one, one, ReduceOp.SUM, stream);
    comm.broadcast(another, 0, stream);
  }

  private void assertAllocatesNothing(Runnable calls) {
    long bytes = Long.MAX_VALUE;
    // The interpreter allocates objects that compiled code does not.
    for (int attempt = 0; attempt < 20 && bytes >= CALLS; attempt++) {
      bytes = allocated(calls);
    }
    long found = bytes;
    assertTrue(bytes < CALLS, () -> found + " bytes in " + CALLS + " rounds");
  }

  private long allocated(Runnable calls) {
    long bytes = 0;
    for (int i = 0; i < CALLS; i += BETWEEN_WAITS) {
      long before = THREADS.getCurrentThreadAllocatedBytes();
      for (int j = 0; j < BETWEEN_WAITS; j++) {
        calls.run();
      }
      bytes += THREADS.getCurrentThreadAllocatedBytes() - before;
      stream.synchronize();
    }
    return bytes;
  }
}
