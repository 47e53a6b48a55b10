package io.nccl4j;

import io.nccl4j.internal.util.Interrupts;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.function.Predicate;

/**
 * Initializes classes before the first operation needs them, on a thread with a large stack. If,
 * for example, an initializer ran into a {@link StackOverflowError} in a program's thread, its
 * class would be unusable until the process exits.
 */
final class ClassInitialization {
  private static final long STACK_BYTES = 16L << 20;

  /**
   * The top-level classes of this package, {@code internal.util} and {@code spi} that have static
   * initializers, or nested classes with static initializers.
   */
  static final List<String> CONTRACT =
      List.of(
          "Backend",
          "Buffer",
          "Capture",
          "ClassInitialization",
          "CommunicatorConfig",
          "CommunicatorCore",
          "DataType",
          "FailureDetails",
          "Feature",
          "Graph",
          "Group",
          "LibraryVersion",
          "LowPrecision",
          "NcclException",
          "Operation",
          "CheckedOperation",
          "OperationNumbers",
          "DeviceType",
          "Recovery",
          "ReduceOp",
          "NcclResult",
          "ShrinkMode",
          "LaunchTrace",
          "Stream",
          "ThreadScope",
          "FlightRecorderEvents",
          "internal.util.MemoryShortage",
          "internal.util.RateLimitedWarning",
          "spi.StreamDriver");

  private ClassInitialization() {}

  /**
   * Initializes classes and their nested classes.
   *
   * @param names the names of the top-level classes, without the prefix {@code io.nccl4j.}
   * @param usable whether a class can be initialized
   */
  static void run(List<String> names, Predicate<Class<?>> usable) {
    FutureTask<Void> task =
        new FutureTask<>(
            () -> {
              initializePlatform();
              for (String name : names) {
                initialize(name, usable);
              }
              return null;
            });
    Thread.ofPlatform().daemon().name("nccl4j-initialize").stackSize(STACK_BYTES).start(task);
    try {
      Interrupts.getUninterruptibly(task::get);
    } catch (ExecutionException e) {
      if (e.getCause() instanceof Error error) {
        throw error;
      }
      throw new IllegalStateException("a class of nccl4j is missing", e.getCause());
    }
  }

  /** Initializes classes of the JDK that the first operation would otherwise initialize. */
  private static void initializePlatform() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment memory = arena.allocate(Long.BYTES, Long.BYTES);
      for (DataType type : DataType.values()) {
        type.set(memory, 0, type.get(memory, 0));
      }
    }
    CompletableFuture.completedStage(null).thenRun(() -> {});
    Thread.ofVirtual().unstarted(() -> {});
    Sample sample = new Sample("a", 1);
    boolean _ = sample.equals(new Sample(sample.toString(), sample.hashCode()));
  }

  /** A record; the JDK creates its methods when they are first called. */
  private record Sample(Object reference, long number) {}

  private static void initialize(String name, Predicate<Class<?>> usable)
      throws ClassNotFoundException {
    ClassLoader loader = ClassInitialization.class.getClassLoader();
    String qualified = ClassInitialization.class.getPackageName() + "." + name;
    for (Class<?> member : Class.forName(qualified, false, loader).getNestMembers()) {
      if (usable.test(member)) {
        Class.forName(member.getName(), true, loader);
      }
    }
  }
}
