package io.nccl4j.rendezvous;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.rendezvous.RankBackend;
import java.time.Duration;
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

  /** Waits until a thread is inside an exchange of this type of rendezvous. */
  static void awaitExchange(Thread thread, Class<? extends Rendezvous> type)
      throws InterruptedException {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (Arrays.stream(thread.getStackTrace())
        .noneMatch(frame -> frame.getClassName().equals(type.getName()))) {
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

  /**
   * Runs an exchange of ranks with different backends, and checks that each fails at once. The rank
   * with another backend begins last, since rank 0 waits for late ranks for a short time only.
   */
  static void assertBackendMismatch(
      String expected, List<RankBackend> backends, IntFunction<AbstractRendezvous> factory)
      throws Exception {
    List<AbstractRendezvous> rendezvous = new ArrayList<>();
    List<FutureTask<UniqueId>> ranks = new ArrayList<>();
    for (int rank = 0; rank < backends.size(); rank++) {
      AbstractRendezvous own = factory.apply(rank);
      RankBackend backend = backends.get(rank);
      rendezvous.add(own);
      ranks.add(new FutureTask<>(() -> own.exchange(RankThreads::newId, backend)));
    }
    int other = RankBackend.mismatch(backends.toArray(RankBackend[]::new)).orElseThrow().rank();
    for (int rank = 0; rank < backends.size(); rank++) {
      if (rank != other) {
        awaitExchange(startThread(ranks.get(rank)), rendezvous.get(rank).getClass());
      }
    }
    long start = System.nanoTime();
    startThread(ranks.get(other));
    for (FutureTask<UniqueId> rank : ranks) {
      RendezvousException thrown = failure(RendezvousException.class, rank);
      assertTrue(thrown.getMessage().contains(expected), thrown.getMessage());
    }
    Duration took = Duration.ofNanos(System.nanoTime() - start);
    assertTrue(took.compareTo(Duration.ofSeconds(20)) < 0, () -> "only after " + took);
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
