package io.nccl4j.ffm;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Event;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;

/**
 * A program that makes each call for the first time in a deep recursion on a full stack, repeats it
 * with ever more stack until it succeeds, and makes it again on an empty stack.
 */
public final class DeepCalls {
  private static final long STACK_BYTES = 256 << 10;
  private static final Duration SOON = Duration.ofSeconds(10);

  private DeepCalls() {}

  /** Makes the calls on the backend named by the first argument, {@code nccl} or another. */
  public static void main(String[] arguments) throws Exception {
    boolean nccl = arguments[0].equals("nccl");
    Backend backend = nccl ? Backend.nccl() : Backend.reference(2);
    CommunicatorConfig config = CommunicatorConfig.defaults().withTimeout(SOON);
    Communicator comm = backend.newCommunicators(new int[] {0}, config).getFirst();
    Stream stream = comm.newStream();
    Event event = comm.newEvent();
    Buffer send = comm.newBuffer(DataType.INT32, 4);
    Buffer recv = comm.newBuffer(DataType.INT32, 4);
    Map<String, Runnable> calls = new LinkedHashMap<>();
    calls.put("allReduce", () -> comm.allReduce(send, recv, ReduceOp.SUM, stream));
    calls.put("broadcast", () -> comm.broadcast(send, recv, 0, stream));
    calls.put("broadcast in place", () -> comm.broadcast(send, 0, stream));
    calls.put("reduce", () -> comm.reduce(send, recv, ReduceOp.MAX, 0, stream));
    calls.put("allGather", () -> comm.allGather(send, recv, stream));
    calls.put("reduceScatter", () -> comm.reduceScatter(send, recv, ReduceOp.SUM, stream));
    calls.put("allToAll", () -> comm.allToAll(send, recv, stream));
    calls.put("gather", () -> comm.gather(send, recv, 0, stream));
    calls.put("scatter", () -> comm.scatter(send, recv, 0, stream));
    calls.put(
        "group",
        () ->
            Group.run(
                () -> {
                  comm.send(send, 0, stream);
                  comm.recv(recv, 0, stream);
                }));
    calls.put(
        "newPreMulSum",
        () -> {
          try (ReduceOp.PreMulSum op = comm.newPreMulSum(DataType.INT32, 1)) {
            comm.allReduce(send, recv, op, stream);
            stream.synchronize(SOON);
          }
        });
    calls.put("record", () -> stream.record(event));
    calls.put("synchronize", () -> stream.synchronize(SOON));
    calls.put("fill", () -> recv.fill((byte) 0, stream));
    calls.put(
        "copyFromAsync",
        () -> send.copyFromAsync(MemorySegment.ofArray(new int[] {1, 2, 3, 4}), stream));
    calls.put("copyTo", () -> recv.copyTo(MemorySegment.ofArray(new int[4]), stream));
    calls.put("asyncError", comm::asyncError);
    calls.put("completion", () -> stream.completion().toCompletableFuture().join());
    for (Map.Entry<String, Runnable> call : calls.entrySet()) {
      System.out.println(call.getKey() + ": " + atEveryDepth(call.getValue()));
    }
    int[] result = new int[4];
    send.copyFromAsync(MemorySegment.ofArray(new int[] {1, 2, 3, 4}), stream);
    comm.allReduce(send, recv, ReduceOp.SUM, stream);
    recv.copyTo(MemorySegment.ofArray(result), stream);
    System.out.println("sums " + List.of(result[0], result[1], result[2], result[3]));
    comm.close();
    System.out.println("closed");
  }

  /** Makes a call with ever more stack, then on an empty one; returns {@code ok} or the failure. */
  private static String atEveryDepth(Runnable call) throws InterruptedException {
    Throwable thrown = thrownBy(() -> repeatAfterOverflow(call));
    if (thrown != null) {
      return "in a recursion: " + thrown;
    }
    thrown = thrownBy(call);
    return thrown == null ? "ok" : "on an empty stack: " + thrown;
  }

  private static Throwable thrownBy(Runnable body) throws InterruptedException {
    AtomicReference<Throwable> thrown = new AtomicReference<>();
    Runnable caught =
        () -> {
          try {
            body.run();
          } catch (Throwable failure) {
            thrown.set(failure);
          }
        };
    Thread thread = new Thread(null, caught, "deep", STACK_BYTES);
    thread.start();
    thread.join();
    return thrown.get();
  }

  /** Fills the stack, then repeats the call in each outer frame until the stack suffices. */
  @SuppressWarnings("InfiniteRecursion") // Deliberate: it fills the stack.
  private static void repeatAfterOverflow(Runnable call) {
    try {
      repeatAfterOverflow(call);
    } catch (StackOverflowError full) {
      if (Group.running()) {
        throw new IllegalStateException("the group is open after it has failed");
      }
      call.run();
    }
  }
}
