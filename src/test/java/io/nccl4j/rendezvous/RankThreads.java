package io.nccl4j.rendezvous;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.rendezvous.RankBackend;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.function.IntFunction;

/** Ranks as threads, and ids that a seed decides. */
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

  static <T> T join(FutureTask<T> task) throws Exception {
    return task.get(60, TimeUnit.SECONDS);
  }

  /** Returns what the task threw. */
  static <E extends Throwable> E failure(Class<E> type, FutureTask<?> task) throws Exception {
    try {
      Object result = join(task);
      throw new AssertionError("expected " + type.getSimpleName() + ", but got " + result);
    } catch (ExecutionException e) {
      if (!type.isInstance(e.getCause())) {
        throw new AssertionError("expected " + type.getSimpleName(), e.getCause());
      }
      return type.cast(e.getCause());
    }
  }

  /** Has ranks with different backends exchange an id, and checks that each fails at once. */
  static void assertMixed(
      String expected, List<RankBackend> backends, IntFunction<AbstractRendezvous> places)
      throws Exception {
    long start = System.nanoTime();
    List<FutureTask<UniqueId>> ranks = new ArrayList<>();
    for (int rank = 0; rank < backends.size(); rank++) {
      AbstractRendezvous rendezvous = places.apply(rank);
      RankBackend backend = backends.get(rank);
      ranks.add(start(() -> rendezvous.exchange(RankThreads::newId, backend)));
    }
    for (FutureTask<UniqueId> rank : ranks) {
      RendezvousException refused = failure(RendezvousException.class, rank);
      assertTrue(refused.getMessage().contains(expected), refused.getMessage());
    }
    Duration took = Duration.ofNanos(System.nanoTime() - start);
    assertTrue(took.compareTo(Duration.ofSeconds(10)) < 0, () -> "only after " + took);
  }

  /** Has all ranks exchange ids in so many rounds and checks that all get the made ones. */
  static void exchange(int size, int rounds, IntFunction<Rendezvous> places) throws Exception {
    List<UniqueId> made = new ArrayList<>();
    List<FutureTask<List<UniqueId>>> tasks = new ArrayList<>();
    for (int rank = 0; rank < size; rank++) {
      Rendezvous rendezvous = places.apply(rank);
      tasks.add(start(() -> ids(rendezvous, rounds, made)));
    }
    for (FutureTask<List<UniqueId>> task : tasks) {
      List<UniqueId> got = join(task);
      assertEquals(made, got);
    }
    assertEquals(rounds, new HashSet<>(made).size(), "each round has an id of its own");
  }

  private static List<UniqueId> ids(Rendezvous place, int rounds, List<UniqueId> made) {
    List<UniqueId> got = new ArrayList<>();
    try (place) {
      for (int round = 0; round < rounds; round++) {
        got.add(
            place.exchange(
                () -> {
                  assertEquals(0, place.rank(), "the id is made on rank 0 only");
                  UniqueId id = newId();
                  made.add(id);
                  return id;
                }));
      }
    }
    return got;
  }
}
