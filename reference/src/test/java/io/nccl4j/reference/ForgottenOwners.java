package io.nccl4j.reference;

import io.nccl4j.Backend;
import io.nccl4j.Buffer;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.fixtures.LogLines;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/**
 * A program that forgets to close communicators and streams. On the stand-in it runs in its own
 * process, because what it leaks would disturb the other tests.
 */
public final class ForgottenOwners {
  static final String REPORTER = "io.nccl4j.internal.util.LeakTracker";

  private static final long LIMIT_NANOS = TimeUnit.SECONDS.toNanos(30);

  private ForgottenOwners() {}

  /**
   * Uses two ranks of the NCCL backend and prints the reports. The first argument says whether the
   * ranks are closed, the second is the expected number of reports.
   */
  public static void main(String[] arguments) {
    int reports = Integer.parseInt(arguments[1]);
    try (LogLines log = new LogLines(REPORTER);
        Backend backend = Backend.nccl()) {
      use(backend, "forgetful", Boolean.parseBoolean(arguments[0]));
      forgetStream(backend);
      collectUntil(() -> log.lines().size() >= reports);
      // The console appender writes to System.out too: the prefix marks these lines.
      log.lines().forEach(line -> System.out.println("reported: " + line));
      log.thrown().forEach(e -> System.out.println("reported: made by " + creator(e)));
    }
    System.exit(0);
  }

  /** Returns the method of this class that created the object of a report. */
  static String creator(Throwable creation) {
    for (StackTraceElement frame : creation.getStackTrace()) {
      if (frame.getClassName().equals(ForgottenOwners.class.getName())) {
        return frame.getMethodName();
      }
    }
    return "unknown";
  }

  /** Creates a stream and drops it; returns its description in reports. */
  static String forgetStream(Backend backend) {
    return describe(backend.newStream(0));
  }

  static String describe(Stream stream) {
    return "stream " + stream.number() + " of " + stream.deviceType();
  }

  /**
   * Creates two ranks with a stream each, and runs an all-reduce.
   *
   * @return their descriptions in reports
   */
  static List<String> use(Backend backend, String name, boolean closes) {
    CommunicatorConfig config = CommunicatorConfig.defaults().withName(name);
    List<String> descriptions = new ArrayList<>();
    List<Thread> threads = new ArrayList<>();
    for (Communicator rank : backend.newCommunicators(new int[] {0, 1}, config)) {
      Stream stream = rank.newStream();
      descriptions.add(rank.toString());
      descriptions.add(describe(stream));
      threads.add(Thread.ofPlatform().start(() -> use(rank, stream, closes)));
    }
    threads.forEach(ForgottenOwners::join);
    return descriptions;
  }

  private static void use(Communicator rank, Stream stream, boolean closes) {
    try (Buffer data = rank.newBuffer(DataType.INT32, 1000)) {
      data.fill((byte) 1, stream);
      rank.allReduce(data, data, ReduceOp.SUM, stream);
      stream.synchronize();
    }
    if (closes) {
      rank.close();
      stream.close();
    }
  }

  private static void join(Thread thread) {
    try {
      thread.join();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  /** Runs the garbage collector until a condition is true. */
  static void collectUntil(BooleanSupplier condition) {
    long start = System.nanoTime();
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() - start > LIMIT_NANOS) {
        throw new AssertionError("the condition did not become true after garbage collections");
      }
      collect();
    }
  }

  /** Runs the garbage collector, and gives the reporting thread time to run. */
  static void collect() {
    System.gc();
    try {
      TimeUnit.MILLISECONDS.sleep(20);
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }
}
