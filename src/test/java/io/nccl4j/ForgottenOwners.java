package io.nccl4j;

import io.nccl4j.ffm.LogLines;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/**
 * A program that forgets to close communicators and streams. It is a process of its own for the
 * stand-in, whose other tests would not be the same after it.
 */
public final class ForgottenOwners {
  static final String REPORTER = "io.nccl4j.LeakTracker";

  private static final long LIMIT_NANOS = TimeUnit.SECONDS.toNanos(30);

  private ForgottenOwners() {}

  /**
   * Uses two ranks of the NCCL backend, and prints what is reported; the first argument says
   * whether they are closed, the second how many reports there are to be.
   */
  public static void main(String[] arguments) {
    int reports = Integer.parseInt(arguments[1]);
    try (LogLines log = new LogLines(REPORTER);
        Backend backend = Backend.nccl()) {
      use(backend, "forgetful", Boolean.parseBoolean(arguments[0]));
      forgetStream(backend);
      collectUntil(() -> log.lines().size() >= reports);
      // The console's appender prints there too.
      log.lines().forEach(line -> System.out.println("reported: " + line));
      log.thrown().forEach(made -> System.out.println("reported: made by " + maker(made)));
    }
    System.exit(0);
  }

  /** Returns the method of this class that has made something. */
  static String maker(Throwable made) {
    for (StackTraceElement frame : made.getStackTrace()) {
      if (frame.getClassName().equals(ForgottenOwners.class.getName())) {
        return frame.getMethodName();
      }
    }
    return "nobody known";
  }

  /** Makes a stream and forgets it; returns what reports call it. */
  static String forgetStream(Backend backend) {
    return describe(backend.newStream(0));
  }

  static String describe(Stream stream) {
    return "stream " + stream.number() + " of " + stream.deviceType();
  }

  /**
   * Makes two ranks with a stream each, which reduce something.
   *
   * @return what reports call all of them
   */
  static List<String> use(Backend backend, String name, boolean closes) {
    CommunicatorConfig config = CommunicatorConfig.defaults().withName(name);
    List<String> descriptions = new ArrayList<>();
    List<Thread> threads = new ArrayList<>();
    for (Communicator rank : backend.newCommunicators(config, 0, 1)) {
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

  /** Has garbage collected until something is seen of it. */
  static void collectUntil(BooleanSupplier seen) {
    long start = System.nanoTime();
    while (!seen.getAsBoolean()) {
      if (System.nanoTime() - start > LIMIT_NANOS) {
        throw new AssertionError("nothing is seen of a collection");
      }
      collect();
    }
  }

  /** Has garbage collected, and gives the thread that reports it a moment. */
  static void collect() {
    System.gc();
    try {
      TimeUnit.MILLISECONDS.sleep(20);
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }
}
