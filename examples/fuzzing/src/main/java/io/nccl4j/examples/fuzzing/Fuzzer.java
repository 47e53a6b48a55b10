package io.nccl4j.examples.fuzzing;

import com.sun.management.ThreadMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryType;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.random.RandomGenerator;
import java.util.stream.Stream;

/**
 * Gives mutated messages to a target for some time. Each input must be accepted, or be rejected
 * with a documented exception, within the target's limits of time and allocated bytes; no thread
 * may end by an exception, and no descriptor may be left open. Anything else is a finding.
 *
 * <p>Jazzer, the fuzzer for JUnit on Maven Central, was considered: its mutations are guided by
 * coverage, but it needs a native library and an instrumenting agent, which {@code
 * --illegal-native-access=deny} refuses, and it measures neither allocated bytes nor descriptors,
 * which are half of what is checked here.
 *
 * <p>Settings, as system properties: {@code test.seed} repeats a run's inputs in the same order,
 * {@code fuzz.seconds} is the time for each target, and {@code fuzz.target} names the only target
 * to run.
 */
public final class Fuzzer {
  // The build always sets the property, empty where nobody has chosen a seed.
  private static final long SEED = Long.getLong("test.seed", System.nanoTime() & 0xFFFF_FFFFL);
  private static final double SMOKE_SECONDS = 0.3;
  private static final Duration SETTLING = Duration.ofSeconds(5);
  private static final int MOST_FINDINGS = 20;
  private static final int MOST_HEX_BYTES = 2048;
  private static final long GOLDEN = 0x9E37_79B9_7F4A_7C15L;
  private static final Path DESCRIPTORS = Path.of("/proc/self/fd");

  /** Descriptors that come and go without our doing, such as those of the class loader. */
  private static final int DESCRIPTOR_SLACK = 8;

  private static final ThreadMXBean THREADS =
      ManagementFactory.getPlatformMXBean(ThreadMXBean.class);

  private final String name;
  private final FuzzTarget target;
  // One of each kind, with the input that showed it first; guarded by itself.
  private final Map<String, String> findings = new LinkedHashMap<>();
  private final AtomicLong inputs = new AtomicLong();
  private volatile long begun;
  private volatile byte[] current = {};
  private volatile long mostAllocated;

  private Fuzzer(String name, FuzzTarget target) {
    this.name = name;
    this.target = target;
  }

  /** {@return whether the settings ask for a target} */
  public static boolean selected(String name) {
    String only = System.getProperty("fuzz.target", "");
    return only.isEmpty() || only.equals(name);
  }

  /** {@return a source of choices that is the same each time for the same input} */
  public static RandomGenerator random(byte[] input) {
    return new SplittableRandom(Arrays.hashCode(input) * GOLDEN);
  }

  /**
   * Opens a target, runs it, prints what came of it, and closes it.
   *
   * @param name the name that {@code scripts/fuzz --target} selects
   * @param opening opens it
   * @throws AssertionError if there are findings; its message shows an input for each
   * @throws Exception if the target cannot be opened, or its samples cannot be made
   */
  public static void run(String name, Callable<? extends FuzzTarget> opening) throws Exception {
    String chosen = System.getProperty("fuzz.seconds", "");
    double seconds = chosen.isEmpty() ? SMOKE_SECONDS : Double.parseDouble(chosen);
    Thread.UncaughtExceptionHandler before = Thread.getDefaultUncaughtExceptionHandler();
    try (FuzzTarget target = opening.call()) {
      Fuzzer fuzzer = new Fuzzer(name, target);
      Thread.setDefaultUncaughtExceptionHandler(
          (thread, thrown) -> fuzzer.find("ended the thread " + thread.getName(), thrown));
      fuzzer.run(seconds);
    } finally {
      Thread.setDefaultUncaughtExceptionHandler(before);
    }
  }

  private void run(double seconds) throws Exception {
    List<Sample> samples = target.samples();
    boolean ended = inReader(() -> readKnown(samples));
    long descriptors = descriptors();
    heapPools().forEach(MemoryPoolMXBean::resetPeakUsage);
    long heap = liveHeap();
    long started = System.nanoTime();
    long end = started + (long) (seconds * 1e9);
    ended = ended && inReader(() -> readUntil(end, new Mutator(samples)));
    double took = (System.nanoTime() - started) / 1e9;
    if (ended) {
      checkAfterwards(descriptors);
    }
    System.out.printf(
        "fuzz %s: %d inputs in %.1f s, %d findings; an input allocated at most %d KiB, the heap held"
            + " %d MiB before and %d MiB after (%d MiB at most), descriptors %d and %d"
            + " (-Dtest.seed=%d)%n",
        name,
        inputs.get(),
        took,
        findings.size(),
        mostAllocated >> 10,
        heap >> 20,
        liveHeap() >> 20,
        heapPools().mapToLong(pool -> pool.getPeakUsage().getUsed()).sum() >> 20,
        descriptors,
        descriptors(),
        SEED);
    synchronized (findings) {
      if (!findings.isEmpty()) {
        throw new AssertionError(
            "%s, -Dtest.seed=%d:%n%s".formatted(name, SEED, String.join("\n", findings.values())));
      }
    }
  }

  private void readKnown(List<Sample> samples) {
    target.regressions().forEach(hex -> read(HexFormat.of().parseHex(hex)));
    samples.forEach(sample -> read(sample.bytes()));
  }

  private void readUntil(long end, Mutator mutator) {
    long seed = SEED * GOLDEN + name.hashCode();
    while (System.nanoTime() < end && findingCount() < MOST_FINDINGS) {
      RandomGenerator random = new SplittableRandom(seed + inputs.get() * GOLDEN);
      read(mutator.next(random));
      inputs.incrementAndGet();
    }
  }

  /** Reads inputs in a thread of their own; returns false if one does not end. */
  private boolean inReader(Runnable reading) throws InterruptedException {
    Thread reader = Thread.ofPlatform().daemon().name("fuzz-" + name).start(reading);
    long limit = target.limit().toNanos();
    while (!reader.join(Duration.ofMillis(50))) {
      long since = begun;
      if (since != 0 && System.nanoTime() - since > 2 * limit) {
        AssertionError stuck = new AssertionError("it is still being read");
        stuck.setStackTrace(reader.getStackTrace());
        find("did not end within " + target.limit(), stuck);
        return false;
      }
    }
    return true;
  }

  private void read(byte[] input) {
    current = input;
    long bytes = readOnce(input);
    if (bytes > target.mostAllocated(input.length)) {
      // Not what loading classes allocates: only what comes each time.
      bytes = readOnce(input);
    }
    if (bytes > target.mostAllocated(input.length)) {
      find("allocated more than " + target.mostAllocated(0) + " bytes", amount(bytes + " bytes"));
    }
    mostAllocated = Math.max(mostAllocated, bytes);
  }

  /** Returns how much was allocated. */
  private long readOnce(byte[] input) {
    begun = System.nanoTime();
    long before = allocated();
    try {
      target.read(input);
    } catch (Exception e) {
      if (target.documented().stream().noneMatch(type -> type.isInstance(e))) {
        find("was rejected with an exception that is not documented", e);
      }
    } catch (Throwable e) {
      find("failed", e);
    }
    long bytes = allocated() - before;
    long nanos = System.nanoTime() - begun;
    begun = 0;
    if (nanos > target.limit().toNanos()) {
      long millis = TimeUnit.NANOSECONDS.toMillis(nanos);
      find("took longer than " + target.limit(), amount(millis + " ms"));
    }
    return bytes;
  }

  private long allocated() {
    return target.usesOtherThreads()
        ? THREADS.getTotalThreadAllocatedBytes()
        : THREADS.getCurrentThreadAllocatedBytes();
  }

  private static AssertionError amount(String text) {
    AssertionError amount = new AssertionError(text);
    amount.setStackTrace(new StackTraceElement[0]);
    return amount;
  }

  private void checkAfterwards(long descriptors) throws InterruptedException {
    try {
      target.check();
    } catch (Throwable e) {
      find("broke what others use", e);
    }
    long until = System.nanoTime() + SETTLING.toNanos();
    while (descriptors() > descriptors + DESCRIPTOR_SLACK) {
      if (System.nanoTime() > until) {
        find("left descriptors", amount(descriptors + " before, " + descriptors() + " after"));
        return;
      }
      Thread.sleep(20);
    }
  }

  private int findingCount() {
    synchronized (findings) {
      return findings.size();
    }
  }

  private void find(String what, Throwable thrown) {
    byte[] input = current;
    String place =
        Arrays.stream(thrown.getStackTrace())
            .filter(frame -> frame.getClassName().startsWith("io.nccl4j"))
            .findFirst()
            .map(Object::toString)
            .orElse("");
    StringBuilder text = new StringBuilder("An input ").append(what).append(": ").append(thrown);
    Arrays.stream(thrown.getStackTrace())
        .limit(12)
        .forEach(f -> text.append("\n    at ").append(f));
    byte[] shown = Arrays.copyOf(input, Math.min(input.length, MOST_HEX_BYTES));
    text.append("\n  input %d, %d bytes: ".formatted(inputs.get(), input.length));
    text.append(HexFormat.of().formatHex(shown));
    synchronized (findings) {
      findings.putIfAbsent(what + thrown.getClass() + place, text.toString());
    }
  }

  private static long descriptors() {
    try (Stream<Path> open = Files.list(DESCRIPTORS)) {
      return open.count();
    } catch (IOException e) {
      // Not every system has the folder; then descriptors are not checked.
      return 0;
    }
  }

  private static Stream<MemoryPoolMXBean> heapPools() {
    List<MemoryPoolMXBean> pools = ManagementFactory.getMemoryPoolMXBeans();
    return pools.stream().filter(pool -> pool.getType() == MemoryType.HEAP);
  }

  private static long liveHeap() {
    System.gc();
    return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
  }
}
