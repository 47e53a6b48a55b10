package io.nccl4j.internal.rendezvous;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.NcclTimeoutException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.auth.SharedSecret;
import io.nccl4j.internal.util.Deadline;
import java.io.IOException;
import java.net.ProtocolException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Predicate;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The values that ranks leave in a store: stale, damaged, foreign and recorded ones. */
class StoreExchangeTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final Duration ENOUGH = Duration.ofSeconds(2);
  private static final Random RANDOM = new Random(Long.getLong("test.seed", System.nanoTime()));
  private static final SharedSecret SECRET = secret("correct horse battery");

  private final Memory store = new Memory();

  private static SharedSecret secret(String text) {
    return new SharedSecret(text.getBytes(StandardCharsets.US_ASCII));
  }

  private static UniqueId newId() {
    byte[] bytes = new byte[UniqueId.BYTES];
    RANDOM.nextBytes(bytes);
    return UniqueId.of(bytes);
  }

  /** A store of the threads of a test. */
  private static class Memory implements Store {
    private final Map<String, byte[]> values = new TreeMap<>();
    private final Map<String, byte[]> everSet = new TreeMap<>();

    @Override
    public synchronized void set(String key, byte[] value) {
      values.put(name(key), value);
      everSet.put(name(key), value);
      notifyAll();
    }

    private static String name(String key) {
      return key.substring(key.indexOf('-', "nccl4j-".length()) + 1);
    }

    @Override
    public synchronized byte[] get(String key) {
      return values.getOrDefault(name(key), new byte[0]);
    }

    @Override
    public synchronized void delete(String key) {
      values.remove(name(key));
    }

    /** Waits until a value is set that meets a condition; returns it. */
    private synchronized byte[] await(String name, Predicate<byte[]> condition)
        throws InterruptedException {
      Deadline deadline = Deadline.after(LONG);
      while (!values.containsKey(name) || !condition.test(values.get(name))) {
        assertFalse(deadline.passed(), () -> name + " is not in " + values.keySet());
        wait(deadline.remainingMillis());
      }
      return values.get(name);
    }

    private byte[] await(String name) throws InterruptedException {
      return await(name, value -> true);
    }

    @Override
    public void close() {}
  }

  /** A store that rejects its clients. */
  private static final class Rejecting extends Memory {
    @Override
    public void open(Deadline deadline) throws IOException {
      throw new ProtocolException("it rejects this rank");
    }
  }

  /** Starts the exchange of one rank. */
  private FutureTask<UniqueId> start(int rank, int size, int round, Duration timeout) {
    return start(rank, size, round, timeout, SECRET);
  }

  private FutureTask<UniqueId> start(
      int rank, int size, int round, Duration timeout, SharedSecret secret) {
    StoreExchange exchange =
        new StoreExchange(
            new JobRank(rank, size, ""), secret, "memory", () -> store, false, () -> {});
    FutureTask<UniqueId> task =
        new FutureTask<>(
            () ->
                exchange.exchange(
                    round,
                    RankBackend.UNKNOWN,
                    () -> rank == 0 ? newId() : null,
                    Deadline.after(timeout)));
    Thread.ofPlatform().daemon().start(task);
    return task;
  }

  /** Leaves the announcement of a process that has ended. */
  private byte[] leaveAnnouncement(int rank, int size, int round, String failure) throws Exception {
    Attempt dead =
        new Attempt(
            new JobRank(rank, size, ""),
            round,
            RankBackend.UNKNOWN,
            failure,
            "memory",
            Deadline.after(LONG));
    dead.keepAnnounced(new SealedStore(store, SECRET, ""));
    return store.await("rank-" + rank);
  }

  private static UniqueId join(FutureTask<UniqueId> task) throws Exception {
    return task.get(60, TimeUnit.SECONDS);
  }

  private static String failure(Class<? extends Exception> type, FutureTask<?> task) {
    ExecutionException thrown =
        assertThrows(ExecutionException.class, () -> task.get(60, TimeUnit.SECONDS));
    assertEquals(type, thrown.getCause().getClass(), thrown::toString);
    return thrown.getCause().getMessage();
  }

  private void assertExchanged(FutureTask<UniqueId> zero, FutureTask<UniqueId> other)
      throws Exception {
    UniqueId id = join(zero);
    assertEquals(id, join(other));
    assertEquals(Map.of(), store.values);
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "other size", "other round", "failed"})
  void announcementOfAnEndedProcessIsReplaced(String kind) throws Exception {
    int size = kind.equals("other size") ? 7 : 2;
    int round = kind.equals("other round") ? 1 : 2;
    leaveAnnouncement(1, size, round, kind.equals("failed") ? "it has failed" : "");
    FutureTask<UniqueId> zero = start(0, 2, 2, LONG);
    store.await("answer-1");
    Thread.sleep(100);
    assertFalse(zero.isDone(), "rank 1 has not arrived yet");
    assertExchanged(zero, start(1, 2, 2, LONG));
  }

  @Test
  void damagedValuesAreReplacedByTheirOwner() throws Exception {
    byte[] whole = leaveAnnouncement(1, 2, 1, "");
    byte[] flipped = whole.clone();
    flipped[RANDOM.nextInt(whole.length)] ^= 1;
    for (byte[] left : List.of(flipped, new byte[1], new byte[Store.MAX_VALUE_BYTES])) {
      for (String name : List.of("rank-0", "rank-1", "answer-1", "receipt-1")) {
        store.set("nccl4j-x-" + name, left);
      }
      FutureTask<UniqueId> zero = start(0, 2, 1, LONG);
      store.await("rank-0", value -> value != left);
      assertExchanged(zero, start(1, 2, 1, LONG));
    }
  }

  @Test
  void changedByteIsNotOpened() throws Exception {
    SealedStore sealed = new SealedStore(store, SECRET, "");
    byte[] content = {1, 2, 3};
    sealed.set("rank-1", Token.random(), Token.NONE, content);
    byte[] whole = store.await("rank-1");
    assertArrayEquals(
        content, sealed.open(sealed.get("rank-1").orElseThrow()).orElseThrow().array());
    for (int position = 0; position < whole.length; position++) {
      byte[] changed = whole.clone();
      changed[position] ^= (byte) (1 << RANDOM.nextInt(8));
      store.set("nccl4j-x-rank-1", changed);
      int at = position;
      assertTrue(sealed.get("rank-1").flatMap(sealed::open).isEmpty(), () -> "byte " + at);
    }
    store.set("nccl4j-x-rank-2", whole);
    assertTrue(sealed.get("rank-2").flatMap(sealed::open).isEmpty(), "under another name");
  }

  @Test
  void valuesOfOtherVersionOrSecretAreNamedAtTheDeadline() throws Exception {
    byte[] whole = leaveAnnouncement(1, 3, 1, "");
    whole[3]++;
    store.set("nccl4j-x-rank-1", whole);
    byte[] damaged = leaveAnnouncement(2, 3, 1, "");
    damaged[damaged.length - 1]++;
    String text = failure(NcclTimeoutException.class, start(0, 3, 1, ENOUGH));
    assertTrue(text.contains("missing rank 1 of 3"), text);
    assertTrue(text.contains("(rank 1 announced by another version of nccl4j, or damaged)"), text);
    assertTrue(text.contains("rank 2 does not know the secret of rank 0, or its announce"), text);
  }

  @Test
  void idOfAFailedRunIsNotTaken() throws Exception {
    leaveAnnouncement(2, 3, 1, "");
    FutureTask<UniqueId> zero = start(0, 3, 1, ENOUGH);
    // Rank 1 gets the id, since rank 2 seems to have arrived.
    UniqueId old = join(start(1, 3, 1, LONG));
    byte[] answer = store.everSet.get("answer-1");
    String text = failure(NcclTimeoutException.class, zero);
    assertTrue(text.contains("missing rank 2 of 3 (rank 2 announced, not confirmed)"), text);
    store.set("nccl4j-x-answer-1", answer);
    FutureTask<UniqueId> one = start(1, 3, 1, LONG);
    Thread.sleep(300);
    assertFalse(one.isDone(), "the recorded answer is for another attempt");
    FutureTask<UniqueId> two = start(2, 3, 1, LONG);
    UniqueId id = join(start(0, 3, 1, LONG));
    assertEquals(List.of(id, id), List.of(join(one), join(two)));
    assertFalse(id.equals(old));
  }

  @Test
  void removedAnnouncementsAreWrittenAgain() throws Exception {
    FutureTask<UniqueId> one = start(1, 2, 1, LONG);
    for (int sweep = 0; sweep < 4; sweep++) {
      store.await("rank-1");
      store.delete("nccl4j-x-rank-1");
    }
    assertExchanged(start(0, 2, 1, LONG), one);
  }

  @Test
  void processesWithOneRankFail() throws Exception {
    FutureTask<UniqueId> first = start(0, 2, 1, LONG);
    store.await("rank-0");
    FutureTask<UniqueId> second = start(0, 2, 1, LONG);
    for (FutureTask<UniqueId> rank : List.of(first, second)) {
      String text = failure(ExchangeFailedException.class, rank);
      assertTrue(text.startsWith("two processes take part as rank 0 in memory"), text);
    }
  }

  @Test
  void rankBehindFailsEveryRank() throws Exception {
    FutureTask<UniqueId> zero = start(0, 2, 2, LONG);
    FutureTask<UniqueId> one = start(1, 2, 1, LONG);
    String reason = "rank 1 is in round 1, rank 0 is in round 2";
    assertEquals(reason, failure(ExchangeFailedException.class, zero));
    String told = failure(ExchangeFailedException.class, one);
    assertEquals("rank 0 at memory has ended the exchange: " + reason, told);
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void secretHidesTheId(boolean known) throws Exception {
    FutureTask<UniqueId> zero = start(0, 2, 1, LONG);
    UniqueId id = join(start(1, 2, 1, LONG));
    join(zero);
    byte[] answer = store.everSet.get("answer-1");
    assertFalse(HexFormat.of().formatHex(answer).contains(id.toHex().substring(0, 16)));
    store.set("nccl4j-x-answer-1", answer);
    SealedStore reader = new SealedStore(store, known ? SECRET : secret("incorrect horse"), "");
    assertEquals(known, reader.open(reader.get("answer-1").orElseThrow()).isPresent());
  }

  @Test
  void ranksWithoutTheSecretFailAndAreNamed() throws Exception {
    FutureTask<UniqueId> zero = start(0, 2, 1, LONG);
    FutureTask<UniqueId> one = start(1, 2, 1, LONG, SharedSecret.none());
    String refused = failure(ExchangeFailedException.class, one);
    assertTrue(refused.contains("was not sealed with the secret of rank 1"), refused);
    assertTrue(refused.contains("NCCL4J_SECRET"), refused);
    String text = failure(ExchangeFailedException.class, zero);
    assertTrue(text.startsWith("rank 1 does not know the secret of rank 0"), text);
  }

  @Test
  void storeThatComesBackIsUsedAgain() throws Exception {
    AtomicInteger failures = new AtomicInteger(3);
    Store failing =
        new Store() {
          @Override
          public void set(String key, byte[] value) throws IOException {
            if (key.endsWith("rank-1") && failures.getAndDecrement() > 0) {
              throw new IOException("lost");
            }
            store.set(key, value);
          }

          @Override
          public byte[] get(String key) {
            return store.get(key);
          }

          @Override
          public void delete(String key) {
            store.delete(key);
          }

          @Override
          public void close() {}
        };
    StoreExchange one =
        new StoreExchange(new JobRank(1, 2, ""), SECRET, "memory", () -> failing, true, () -> {});
    FutureTask<UniqueId> zero = start(0, 2, 1, LONG);
    UniqueId id = one.exchange(1, RankBackend.UNKNOWN, () -> null, Deadline.after(LONG));
    assertEquals(id, join(zero));
    assertTrue(failures.get() < 0, "it was opened again");
  }

  @Test
  void rejectingStoreIsNotOpenedAgain() {
    AtomicInteger opened = new AtomicInteger();
    StoreExchange one =
        new StoreExchange(
            new JobRank(1, 2, ""),
            SECRET,
            "memory",
            () -> {
              opened.incrementAndGet();
              return new Rejecting();
            },
            true,
            () -> {});
    ExchangeFailedException thrown =
        assertThrows(
            ExchangeFailedException.class,
            () -> one.exchange(1, RankBackend.UNKNOWN, () -> null, Deadline.after(LONG)));
    assertEquals("memory failed rank 1: it rejects this rank", thrown.getMessage());
    assertEquals(1, opened.get());
  }
}
