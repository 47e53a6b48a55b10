package io.nccl4j.rendezvous;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.rendezvous.StoreExchange;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.function.IntFunction;

/** Runs ranks as threads, and generates ids from a seed. */
final class RankThreads {
  static final long SEED = Long.getLong("test.seed", System.nanoTime());
  static final Random RANDOM = new Random(SEED);

  static {
    System.out.println("rendezvous tests: -Dtest.seed=" + SEED);
  }

  private RankThreads() {}

  static synchronized UniqueId newId() {
    byte[] bytes = new byte[UniqueId.BYTES];
    RANDOM.nextBytes(bytes);
    return UniqueId.of(bytes);
  }

  static <T> FutureTask<T> start(Callable<T> work) {
    FutureTask<T> task = new FutureTask<>(work);
    Thread.ofPlatform().daemon().start(task);
    return task;
  }

  /** Starts one thread; the test may interrupt it. */
  static Thread startThread(FutureTask<?> task) {
    return Thread.ofPlatform().daemon().start(task);
  }

  /** Waits until a thread is inside an exchange. */
  static void awaitExchange(Thread thread) throws InterruptedException {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (Arrays.stream(thread.getStackTrace())
        .noneMatch(frame -> frame.getClassName().equals(StoreExchange.class.getName()))) {
      assertTrue(System.nanoTime() < end, "the exchange did not begin");
      Thread.sleep(1);
    }
  }

  static <T> T join(FutureTask<T> task) throws Exception {
    return task.get(60, TimeUnit.SECONDS);
  }

  /** Returns what the task threw. */
  static <E extends Throwable> E failure(Class<E> type, FutureTask<?> task) throws Exception {
    try {
      Object result = join(task);
      throw new AssertionError("expected " + type.getSimpleName() + ", but received " + result);
    } catch (ExecutionException e) {
      if (!type.isInstance(e.getCause())) {
        throw new AssertionError("expected " + type.getSimpleName(), e.getCause());
      }
      return type.cast(e.getCause());
    }
  }

  /** Runs rounds of exchanges on all ranks, and checks that all receive the created ids. */
  static void exchange(int size, int rounds, IntFunction<Rendezvous> factory) throws Exception {
    List<UniqueId> created = new ArrayList<>();
    List<FutureTask<List<UniqueId>>> tasks = new ArrayList<>();
    for (int rank = 0; rank < size; rank++) {
      Rendezvous rendezvous = factory.apply(rank);
      tasks.add(start(() -> ids(rendezvous, rounds, created)));
    }
    for (FutureTask<List<UniqueId>> task : tasks) {
      List<UniqueId> received = join(task);
      assertEquals(created, received);
    }
    assertEquals(rounds, new HashSet<>(created).size(), "each round has a different id");
  }

  private static List<UniqueId> ids(Rendezvous rendezvous, int rounds, List<UniqueId> created) {
    List<UniqueId> received = new ArrayList<>();
    try (rendezvous) {
      for (int round = 0; round < rounds; round++) {
        received.add(
            rendezvous.exchange(
                () -> {
                  assertEquals(0, rendezvous.rank(), "only rank 0 creates the id");
                  UniqueId id = newId();
                  created.add(id);
                  return id;
                }));
      }
    }
    return received;
  }
}
